package httpguard

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

// grace is how long a new stranger keeps its place in any case: long enough to send a request at once.
const grace = 100 * time.Millisecond

// conns bounds the connections of a listener. A stranger is a connection without an admitted request yet; it gives way
// to later ones. While all strangers are new, a local client waits in the kernel's queue, where it takes no descriptor.
// A client of another machine displaces the oldest stranger of its address at once. So a client that sends its request
// at once is served, however many others connect.
type conns struct {
	net.Listener
	max, strangersOf, strangers int

	mu   sync.Mutex
	open map[*conn]bool
	wait []*conn // the strangers, the oldest first

	freed chan struct{} // gets a token when a place may be free
}

// conn is one connection.
type conn struct {
	net.Conn
	all   *conns
	from  string // address without port
	since time.Time
}

type connKey struct{}

// bounded returns l with the guard's bounds on connections.
func (g *Guard) bounded(l net.Listener) net.Listener {
	return &conns{
		Listener: l, max: g.opts.MaxConns, strangersOf: min(g.opts.MaxStrangers, g.opts.MaxConns), strangers: max(1, g.opts.MaxConns/2),
		open: map[*conn]bool{}, freed: make(chan struct{}, 1),
	}
}

// withConn adds a request's connection to its context.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// Accept implements net.Listener. It closes connections beyond the bounds.
func (cs *conns) Accept() (net.Conn, error) {
	for {
		raw, err := cs.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := cs.take(raw); c != nil {
			return c, nil
		}
		_ = raw.Close()
	}
}

// take finds a place for a connection, or returns nil.
func (cs *conns) take(raw net.Conn) *conn {
	c := &conn{Conn: raw, all: cs, from: hostOf(raw.RemoteAddr())}
	cs.mu.Lock()
	victim := cs.victim(c.from)
	for victim != nil && time.Since(victim.since) < grace && (victim.from != c.from || isOurs(raw.RemoteAddr())) {
		left := grace - time.Since(victim.since)
		cs.mu.Unlock()
		select {
		case <-cs.freed:
		case <-time.After(left):
		}
		cs.mu.Lock()
		victim = cs.victim(c.from)
	}
	defer cs.mu.Unlock()
	if victim == nil && len(cs.open) >= cs.max {
		return nil
	}
	if victim != nil {
		cs.forget(victim)
		_ = victim.Conn.Close()
	}
	c.since = time.Now()
	cs.open[c] = true
	cs.wait = append(cs.wait, c)
	return c
}

// isOurs reports whether a client is on this machine, where all clients have the same address.
func isOurs(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// victim returns the stranger that gives way to a new connection, or nil if none needs to or can. The caller must hold
// mu.
func (cs *conns) victim(from string) *conn {
	of := 0
	for _, c := range cs.wait {
		if c.from == from {
			of++
		}
	}
	switch {
	case of >= cs.strangersOf:
		return cs.oldest(func(c *conn) bool { return c.from == from })
	case len(cs.wait) >= cs.strangers, len(cs.open) >= cs.max:
		return cs.oldest(func(*conn) bool { return true })
	}
	return nil
}

// oldest returns the oldest stranger for which of returns true, or nil. The caller must hold mu.
func (cs *conns) oldest(of func(*conn) bool) *conn {
	if i := slices.IndexFunc(cs.wait, of); i >= 0 {
		return cs.wait[i]
	}
	return nil
}

// forget removes a connection. The caller must hold mu.
func (cs *conns) forget(c *conn) {
	delete(cs.open, c)
	defer cs.free()
	if i := slices.Index(cs.wait, c); i >= 0 {
		cs.wait = slices.Delete(cs.wait, i, i+1)
	}
}

// free wakes a goroutine that waits for a place.
func (cs *conns) free() {
	select {
	case cs.freed <- struct{}{}:
	default:
	}
}

// prove records that a request of this connection was admitted.
func (c *conn) prove() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if i := slices.Index(c.all.wait, c); i >= 0 {
		c.all.wait = slices.Delete(c.all.wait, i, i+1)
		c.all.free()
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.all.mu.Lock()
	c.all.forget(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

func hostOf(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return ""
}
