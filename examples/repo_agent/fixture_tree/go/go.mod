module example.org/jobq

go 1.22
