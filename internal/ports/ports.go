// Package ports serves one port of a session on this machine: its bytes on a socket ([Forward]), or
// HTTP for one person's browser ([Web]). The caller opens the connections to the session, and
// decides who may reach the socket.
package ports

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/relay"
)

// MaxConns is the maximum number of connections served at once. If a later one waits, one that has been silent for
// [silence] gives way.
const MaxConns = 256

// silence is longer than the pauses of most protocols.
const silence = 10 * time.Second

// Dial connects to the port of the session.
type Dial func(ctx context.Context) (net.Conn, error)

// Forward forwards the connections of l until ctx ends, and closes l. failed is called with the
// reason if a connection couldn't be forwarded, from many goroutines at once. Forward returns nil
// when ctx ended it, and leaves nothing open.
func Forward(ctx context.Context, l net.Listener, dial Dial, failed func(error)) error {
	return (&forwarder{dial: dial, failed: failed, silence: patience.For(silence), places: make(chan struct{}, MaxConns), open: map[*visit]bool{}}).serve(ctx, l)
}

type forwarder struct {
	dial    Dial
	failed  func(error)
	silence time.Duration
	places  chan struct{}

	mu   sync.Mutex
	open map[*visit]bool
}

func (f *forwarder) serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel() // runs first
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				relay.Reset(conn)
			}
			return nil
		case err != nil:
			return errors.Join(err, l.Close())
		}
		if !f.place(ctx) {
			relay.Reset(conn)
			return nil
		}
		conns.Go(func() {
			defer func() { <-f.places }()
			if err := f.forward(ctx, conn); err != nil {
				f.failed(err)
			}
		})
	}
}

// place waits for a place, and makes one if a connection has been silent for long. It returns false if ctx ends.
func (f *forwarder) place(ctx context.Context) bool {
	for {
		select {
		case f.places <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		default:
		}
		wait := time.NewTimer(f.giveWay())
		select {
		case f.places <- struct{}{}:
			wait.Stop()
			return true
		case <-ctx.Done():
			wait.Stop()
			return false
		case <-wait.C:
		}
	}
}

// giveWay ends the connection that has been silent the longest, if that is long enough. It returns when to look again.
func (f *forwarder) giveWay() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var oldest *visit
	for v := range f.open {
		if oldest == nil || v.used.Load() < oldest.used.Load() {
			oldest = v
		}
	}
	if oldest == nil {
		return f.silence
	}
	if left := f.silence - time.Since(time.Unix(0, oldest.used.Load())); left > 0 {
		return left
	}
	delete(f.open, oldest)
	relay.Reset(oldest)
	return f.silence
}

// visit is a visitor's connection.
type visit struct {
	net.Conn
	used atomic.Int64 // when it last had a byte, in either direction
}

func (v *visit) touch(n int) {
	if n > 0 {
		v.used.Store(time.Now().UnixNano())
	}
}

// Read implements [net.Conn].
func (v *visit) Read(p []byte) (int, error) {
	n, err := v.Conn.Read(p)
	v.touch(n)
	return n, err
}

// Write implements [net.Conn].
func (v *visit) Write(p []byte) (int, error) {
	n, err := v.Conn.Write(p)
	v.touch(n)
	return n, err
}

var errNoHalf = errors.New("the connection can't be closed in one direction")

// CloseWrite is for [relay.Join], as is SetLinger.
func (v *visit) CloseWrite() error {
	if half, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errNoHalf
}

// SetLinger sets how the kernel ends a TCP connection.
func (v *visit) SetLinger(seconds int) error {
	if l, ok := v.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return l.SetLinger(seconds)
	}
	return nil
}

// forward serves one connection. Its error is that of the dialing.
func (f *forwarder) forward(ctx context.Context, conn net.Conn) error {
	near := &visit{Conn: conn}
	near.touch(1)
	f.mu.Lock()
	f.open[near] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.open, near)
		f.mu.Unlock()
	}()
	far, err := f.dial(ctx)
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
