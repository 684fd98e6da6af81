package httpguard

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

// grace is how long a stranger has its place for sure: time enough for a request that is
// sent at once.
const grace = 100 * time.Millisecond

// conns bounds the connections of a listener. A stranger's, over which no request came
// yet that was let in, gives way to a later one. A client that comes while all strangers are new
// waits in the kernel's queue, where it takes no descriptor; from another machine it is the
// oldest of the same address that goes at once. So a client that sends its request at once
// is served, however many others connect.
type conns struct {
	net.Listener
	max, strangersOf, strangers int

	mu   sync.Mutex
	open map[*conn]bool
	wait []*conn // the strangers' among them, the oldest first

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

// bounded is l with the guard's bounds on connections.
func (g *Guard) bounded(l net.Listener) net.Listener {
	return &conns{
		Listener: l, max: g.opts.MaxConns, strangersOf: min(g.opts.MaxStrangers, g.opts.MaxConns), strangers: max(1, g.opts.MaxConns/2),
		open: map[*conn]bool{}, freed: make(chan struct{}, 1),
	}
}

// withConn tells the handlers which connection brought a request.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// Accept implements net.Listener. Connections for which there is no room are closed.
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

// isOurs reports whether a client is on this machine, where all have one address.
func isOurs(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// victim is the stranger that gives way to one more, nil where none need or can. mu is held.
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

// oldest is the oldest stranger of those, or nil. mu is held.
func (cs *conns) oldest(of func(*conn) bool) *conn {
	if i := slices.IndexFunc(cs.wait, of); i >= 0 {
		return cs.wait[i]
	}
	return nil
}

// forget takes a connection out. mu is held.
func (cs *conns) forget(c *conn) {
	delete(cs.open, c)
	defer cs.free()
	if i := slices.Index(cs.wait, c); i >= 0 {
		cs.wait = slices.Delete(cs.wait, i, i+1)
	}
}

// free wakes up who waits for a place.
func (cs *conns) free() {
	select {
	case cs.freed <- struct{}{}:
	default:
	}
}

// prove says that a request of this connection was let in.
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
