// Package relay copies data between two connections. It passes on an end as an end and a broken
// connection as a reset, so that neither side takes incomplete data for complete.
package relay

import (
	"io"
	"net"
	"sync"
)

const bufferSize = 64 << 10 // bytes, one for each direction

// Join passes bytes on in both directions until both have ended, and closes the connections. To end
// it earlier, [Reset] them; the end of this process does that too.
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

// pass passes one direction on, with its end. If it breaks off, both sides are reset.
func pass(to, from net.Conn) {
	// Hide ReadFrom, because splice's pipes would take four more descriptors for each connection.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, bufferSize))
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok {
		Reset(to, from)
		return
	}
	_ = half.CloseWrite() // it may be gone
}

// Reset closes connections, if possible without the end of a complete stream.
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
