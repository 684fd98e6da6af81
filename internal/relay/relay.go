// Package relay passes on what comes over one connection to another, so that neither end
// takes a half for the whole: an end goes on as an end, and what breaks off as a reset.
package relay

import (
	"io"
	"net"
	"sync"
)

const bufferSize = 64 << 10 // bytes, one for each direction

// Join passes both directions on until both have ended, and closes the connections. To
// end it before, [Reset] them; the death of this process does that too.
func Join(a, b net.Conn) {
	linger(a, 0)
	linger(b, 0)
	var ways sync.WaitGroup
	ways.Go(func() { pass(a, b) })
	ways.Go(func() { pass(b, a) })
	ways.Wait()
	for _, conn := range []net.Conn{a, b} {
		linger(conn, -1)
		_ = conn.Close()
	}
}

// pass passes one direction on, with its end. One that breaks off is reset on both
// sides.
func pass(to, from net.Conn) {
	// Without splice, whose pipes would take four more descriptors a connection.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, bufferSize))
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok {
		Reset(to, from)
		return
	}
	_ = half.CloseWrite() // to one that is gone
}

// Reset closes connections without the end that a whole stream has, where that can be.
func Reset(conns ...net.Conn) {
	for _, conn := range conns {
		if r, ok := conn.(interface{ Reset() error }); ok {
			_ = r.Reset()
		}
		linger(conn, 0)
		_ = conn.Close()
	}
}

func linger(conn net.Conn, seconds int) {
	if l, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(seconds)
	}
}
