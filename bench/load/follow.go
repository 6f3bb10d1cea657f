package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
)

// A server takes a thousand calls on one connection.
const streamsAConnection = 500

// What a crowd at the door takes is not what those cost who are in.
const openingAtOnce = 64

// The first byte of a frame that says that the follower has caught up.
const caughtUp = 2<<3 | 2

var unfollow = func() {}

// follow opens as many streams as are to be in flight, each of the next Session, and returns once all have caught up.
func follow(job *Job) (*Report, error) {
	conns, err := connect(job.Address, (job.InFlight+streamsAConnection-1)/streamsAConnection)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(identified(job))
	ended := make(chan error, job.InFlight)
	opening := make(chan struct{}, openingAtOnce)
	for number := range job.InFlight {
		conn := conns[number/streamsAConnection]
		request := field(nil, 1, job.Sessions[number%len(job.Sessions)])
		opening <- struct{}{}
		go func() {
			ended <- listen(ctx, conn, job.Method, request)
			<-opening
		}()
	}
	unfollow = func() {
		cancel()
		for _, conn := range conns {
			conn.Close()
		}
		unfollow = func() {}
	}
	for range job.InFlight {
		if err := <-ended; err != nil {
			unfollow()
			return &Report{Errors: 1, Example: err.Error()}, nil
		}
	}
	return &Report{Calls: job.InFlight}, nil
}

// listen returns when the follower has caught up; from then on nobody reads, for nothing comes but a word now and then.
func listen(ctx context.Context, conn *grpc.ClientConn, method string, request []byte) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var frame []byte
		if err := stream.RecvMsg(&frame); err != nil {
			return fmt.Errorf("before it caught up: %w", err)
		}
		if len(frame) > 0 && frame[0] == caughtUp {
			return nil
		}
	}
}
