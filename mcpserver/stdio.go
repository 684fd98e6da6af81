package mcpserver

import (
	"context"
	"io"
	"time"
)

// How long a connection's end takes at most.
const (
	drainWithin  = 2 * time.Second // for answers, after the end of the input
	cancelWithin = 2 * time.Second // for calls, after they were cancelled
)

// ServeStdio serves one client on a pair of streams: one JSON-RPC message a line,
// nothing else on out. It returns when the input ends, ctx does, or the output
// breaks, with the session closed; running calls get 2 s to answer at the end of
// the input, then they are cancelled. The error is of ctx alone: how a client
// leaves is not one.
//
// in is closed at the end. A Read of it that does not notice leaves one
// goroutine behind, which a process that ends now need not mind.
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
	select {
	case <-ended:
	case <-c.closed:
	case <-ctx.Done():
	}
	_ = c.Close() // cancels the calls that still run
	wait(ended, cancelWithin)
	late, cancel := context.WithTimeout(context.Background(), cancelWithin)
	defer cancel()
	s.tasks.End(late, c)
	s.release(conn)
	wait(ended, cancelWithin)
	return ctx.Err()
}

func wait(done <-chan struct{}, most time.Duration) {
	select {
	case <-done:
	case <-time.After(most):
	}
}
