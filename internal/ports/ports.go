// Package ports serves one port of a session on this machine: its bytes on a socket ([Forward]), or
// HTTP for one person's browser ([Web]). The caller opens the connections to the session, and
// decides who may reach the socket.
package ports

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/wisbox/wisbox/internal/relay"
)

// MaxConns is the maximum number of connections served at once. Others wait in the kernel's queue,
// or are refused.
const MaxConns = 256

// Dial connects to the port of the session.
type Dial func(ctx context.Context) (net.Conn, error)

// Forward forwards the connections of l until ctx ends, and closes l. failed is called with the
// reason if a connection couldn't be forwarded, from many goroutines at once. Forward returns nil
// when ctx ended it, and leaves nothing open.
func Forward(ctx context.Context, l net.Listener, dial Dial, failed func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel() // runs first
	for places := make(chan struct{}, MaxConns); ; {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return errors.Join(err, l.Close())
		}
		conns.Go(func() {
			defer func() { <-places }()
			if err := forward(ctx, conn, dial); err != nil {
				failed(err)
			}
		})
	}
}

// forward serves one connection. Its error is that of the dialing.
func forward(ctx context.Context, near net.Conn, dial Dial) error {
	far, err := dial(ctx)
	if err != nil {
		relay.Reset(near)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer context.AfterFunc(ctx, func() { relay.Reset(near, far) })()
	relay.Join(near, far)
	return nil
}
