package httpguard

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// grace is how long a new stranger keeps its place in any case: long enough to send a request at once.
const grace = 100 * time.Millisecond

// listener bounds the connections of all listeners of a guard. A stranger is a connection without an admitted request
// yet; it gives way to later ones. While all strangers are new, a local client waits in the kernel's queue, where it
// takes no descriptor. A client of another machine displaces the oldest stranger of its address at once. So a client
// that sends its request at once is served, however many others connect.
//
// Other connections count for the client of their last request. Strangers keep places of their own, so a request that
// needs no client, such as one for /health, is served even if clients have all of the others.
type listener struct {
	net.Listener
	g *Guard
}

// strangers are the connections that count for no client.
type strangers struct {
	max, ofAddress int
	wait           []*conn       // the oldest first; guarded by the budget's mu
	freed          chan struct{} // gets a token when a place may be free
}

// conn is one connection.
type conn struct {
	net.Conn
	g    *Guard
	from string // address without port
	used atomic.Int64

	// guarded by the budget's mu
	since   time.Time
	share   *Share // nil for a stranger
	idle    bool   // between two requests
	gone    bool
	running map[*exchange]bool
}

type connKey struct{}

// ownConn returns the connection that the server got from its listener.
func ownConn(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

// withConn adds a request's connection to its context.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, ownConn(c))
}

// connState follows a connection between requests.
func (g *Guard) connState(raw net.Conn, state http.ConnState) {
	if c := ownConn(raw); c != nil {
		g.budget.mu.Lock()
		c.idle = state == http.StateIdle
		g.budget.mu.Unlock()
	}
}

// Accept implements net.Listener. It closes connections beyond the bounds.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.g.take(raw), nil
}

// take finds a place for a connection.
func (g *Guard) take(raw net.Conn) *conn {
	b := g.budget
	c := &conn{Conn: raw, g: g, from: hostOf(raw.RemoteAddr()), running: map[*exchange]bool{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	victim := g.victim(c.from)
	if victim != nil {
		b.say("too many connections without an admitted request; the oldest are closed for new ones")
	}
	for victim != nil && time.Since(victim.since) < grace && (victim.from != c.from || isOurs(raw.RemoteAddr())) {
		left := grace - time.Since(victim.since)
		b.mu.Unlock()
		select {
		case <-g.strangers.freed:
		case <-time.After(left):
		}
		b.mu.Lock()
		victim = g.victim(c.from)
	}
	if victim != nil {
		victim.drop()
	}
	c.since = time.Now()
	c.used.Store(c.since.UnixNano())
	g.strangers.wait = append(g.strangers.wait, c)
	return c
}

// isOurs reports whether a client is on this machine, where all clients have the same address.
func isOurs(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// victim returns the stranger that gives way to a new connection, or nil if none needs to. The caller must hold the
// budget's mu.
func (g *Guard) victim(from string) *conn {
	s := &g.strangers
	of, oldest := 0, (*conn)(nil)
	for _, c := range s.wait {
		if c.from == from {
			if of++; oldest == nil {
				oldest = c
			}
		}
	}
	switch {
	case of >= s.ofAddress:
		return oldest
	case len(s.wait) >= s.max:
		return s.wait[0]
	}
	return nil
}

// leave removes a connection from the strangers. The caller must hold the budget's mu.
func (s *strangers) leave(c *conn) {
	if i := slices.Index(s.wait, c); i >= 0 {
		s.wait = slices.Delete(s.wait, i, i+1)
		select {
		case s.freed <- struct{}{}:
		default:
		}
	}
}

// drop closes a connection, and gives back what it and its requests have taken. The caller must hold the budget's mu.
func (c *conn) drop() {
	c.forget()
	for e := range c.running {
		e.leave()
	}
	_ = c.Conn.Close()
}

// forget removes a connection that is closed. The caller must hold the budget's mu.
func (c *conn) forget() {
	if c.gone {
		return
	}
	c.gone = true
	if c.share == nil {
		c.g.strangers.leave(c)
		return
	}
	c.share.free(ofConns, 1)
	delete(c.share.conns, c)
}

// moveTo makes a connection count for a client. The caller must hold the budget's mu.
func (c *conn) moveTo(s *Share) error {
	if c.share == s || c.gone {
		return nil
	}
	for !s.take(ofConns, 1) {
		if !c.g.budget.giveWay(s, "") {
			return busy("connections")
		}
	}
	if c.share == nil {
		c.g.strangers.leave(c)
	} else {
		c.share.free(ofConns, 1)
		delete(c.share.conns, c)
	}
	c.share = s
	s.conns[c] = true
	return nil
}

// giveWay closes the connection that has been idle the longest: one of s, or of the client with the most connections,
// if that has more than s. With a part, it must have a request of that part of s. It returns false if none is idle. A
// connection whose request has been silent for long, such as a WebSocket, is idle too. The caller must hold mu.
func (b *budget) giveWay(s *Share, part string) bool {
	now := time.Now()
	victim := s.idle(now, b.silence, part)
	if victim == nil && part == "" {
		most := s.taken[ofConns]
		for _, other := range b.shares {
			if c := other.idle(now, b.silence, ""); c != nil && other.taken[ofConns] > most {
				victim, most = c, other.taken[ofConns]
			}
		}
	}
	if victim == nil {
		return false
	}
	b.say("a client's connections or requests are all taken; idle connections are closed for new ones")
	victim.drop()
	return true
}

// idle returns the share's connection that has been idle the longest, or nil.
func (s *Share) idle(now time.Time, silence time.Duration, part string) (found *conn) {
	for c := range s.conns {
		used := c.used.Load()
		idle := c.idle || now.Sub(time.Unix(0, used)) > silence
		if !idle || part != "" && !c.serves(part) || found != nil && found.used.Load() <= used {
			continue
		}
		found = c
	}
	return found
}

func (c *conn) serves(part string) bool {
	for e := range c.running {
		if e.share == c.share && e.part == part {
			return true
		}
	}
	return false
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.used.Store(time.Now().UnixNano())
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.used.Store(time.Now().UnixNano())
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.g.budget.mu.Lock()
	c.forget()
	c.g.budget.mu.Unlock()
	return c.Conn.Close()
}

func hostOf(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return ""
}
