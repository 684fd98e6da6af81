package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection of a program.
type conn struct {
	net.Conn
	p       *Proxy
	touched atomic.Int64
	once    sync.Once
}

// accepting is a listener whose connections count against the sandbox's maximum, which all of its listeners share. At
// the maximum, one connection of each listener waits and the others stay in the kernel's queue.
type accepting struct {
	net.Listener
	p *Proxy
}

// Accept implements net.Listener.
func (l accepting) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	_ = l.p.slowDown(l.p.ctx, l.p.accepts, 1, "", "new connections of programs")
	if len(l.p.places) == cap(l.p.places) {
		l.p.slowed("", fmt.Sprintf("%d connections of programs are open", cap(l.p.places)))
	}
	select {
	case l.p.places <- struct{}{}:
	case <-l.p.ctx.Done():
		reset(raw)
		return nil, net.ErrClosed
	}
	linger(raw, cutAtDeath)
	c := &conn{Conn: raw, p: l.p}
	c.touch()
	if !l.p.add(c) {
		reset(c)
		return nil, net.ErrClosed
	}
	return c, nil
}

func (c *conn) touch()            { c.touched.Store(int64(time.Since(c.p.began))) }
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.touch()
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.touch()
	return n, err
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.p.remove(c)
		<-c.p.places
	})
	linger(c.Conn, inOrder)
	return c.Conn.Close()
}

// handed is a connection that passes from one server to another, with the bytes that were read already.
type handed struct {
	net.Conn
	head []byte
	site site
}

func (h *handed) NetConn() net.Conn { return h.Conn }

func (h *handed) Read(b []byte) (int, error) {
	if len(h.head) > 0 {
		n := copy(b, h.head)
		h.head = h.head[n:]
		return n, nil
	}
	return h.Conn.Read(b)
}

// Close also closes the connection to the server, if no request has taken it.
func (h *handed) Close() error {
	if up := h.site.dialed.take(); up != nil {
		_ = up.Close()
	}
	return h.Conn.Close()
}

// CloseWrite ends the sending direction; most wrappers, unlike tls.Conn, don't have it.
func (h *handed) CloseWrite() error { return closeWrite(h.Conn) }
func (c *conn) CloseWrite() error   { return closeWrite(c.Conn) }

var errHalf = errors.New("the connection can't be closed in one direction")

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errHalf
}

// Ways in which the kernel ends a connection: with cutAtDeath by a reset if this process dies while it is open, since
// that cuts it at any byte; with inOrder by a normal end.
const cutAtDeath, inOrder = 0, -1

func linger(c net.Conn, how int) {
	for {
		if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
			_ = l.SetLinger(how)
			return
		}
		wrapped, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		c = wrapped.NetConn()
	}
}

// reset ends a connection such that its other end sees an error, never a normal end: cut data must not look complete.
func reset(c net.Conn) {
	for under := c; ; {
		if r, ok := under.(interface{ Reset() error }); ok {
			_ = r.Reset()
			break
		}
		if l, ok := under.(interface{ SetLinger(sec int) error }); ok {
			_ = l.SetLinger(0)
			_ = under.Close() // TLS would send close_notify first
			break
		}
		wrapped, ok := under.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		under = wrapped.NetConn()
	}
	_ = c.Close()
}

// errReset ends a copy that a limit or a new policy cut.
var errReset = errors.New("the connection was cut")

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// join copies between two connections until both directions have ended. It passes on an end as an end, and resets both
// after an error.
func join(a, b net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { copyTo(a, b) })
	copyTo(b, a)
	wg.Wait()
	_ = a.Close()
	_ = b.Close()
}

func copyTo(to, from net.Conn) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(onlyWriter{to}, onlyReader{from}, *buf)
	if err == nil {
		err = closeWrite(to)
	}
	if err != nil {
		reset(to)
		reset(from)
	}
}

// They hide other methods, so that io.CopyBuffer uses the buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// handover is a listener of connections that were accepted elsewhere.
type handover struct {
	ctx   context.Context
	conns chan net.Conn
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error   { return nil }
func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }

func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.ctx.Done():
		reset(c)
	}
}
