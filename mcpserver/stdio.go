package mcpserver

import (
	"context"
	"io"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
)

// Time limits for a connection's end.
var (
	drainWithin  = patience.For(2 * time.Second) // for answers, after the end of the input
	cancelWithin = patience.For(2 * time.Second) // for calls, after they were cancelled
)

// ServeStdio serves one client on a pair of streams: one JSON-RPC message per line, and nothing else on out. It closes
// the session and returns when the input or ctx ends, or the output breaks. At the end of the input running calls get 2
// s to answer, then they are cancelled. The only error is that of a ctx which ended first: a client's end is not an error.
//
// It closes in at the end. If a Read of in doesn't return then, one goroutine is left, which is harmless if the process
// ends now.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.Writer) error {
	c := newConn(in, out, drainWithin)
	conn, err := s.sdk.Connect(context.WithValue(context.WithoutCancel(ctx), connKey{}, c), c, nil)
	if err != nil {
		_ = c.Close()
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.Wait()
	}()
	var stopped error // a ctx that ends after the client has left stops nothing
	select {
	case <-ended:
	case <-c.closed:
	case <-ctx.Done():
		stopped = ctx.Err()
	}
	_ = c.Close() // cancels the calls that still run
	wait(ended, cancelWithin)
	late, cancel := context.WithTimeout(context.Background(), cancelWithin)
	defer cancel()
	s.tasks.End(late, c)
	s.release(conn)
	wait(ended, cancelWithin)
	return stopped
}

func wait(done <-chan struct{}, most time.Duration) {
	select {
	case <-done:
	case <-time.After(most):
	}
}
