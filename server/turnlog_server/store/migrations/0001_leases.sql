-- What only one process at a time should do, and which one does it. Names are chosen by the code that takes the lease.
-- A row whose holder dies expires by the clock of the database; fence rises with every holder.
CREATE TABLE IF NOT EXISTS leases (
    name TEXT NOT NULL,
    holder TEXT NOT NULL,
    fence INT8 NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (name)
)
