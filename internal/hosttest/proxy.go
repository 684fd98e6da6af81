package hosttest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy forwards connections to a TCP server and can break them for a test.
type Proxy struct {
	Address string

	t      testing.TB
	server string
	mu     sync.Mutex
	down   bool
	left   int64 // bytes until a cut; 0 is none
	listen net.Listener
	conns  []net.Conn
	tasks  sync.WaitGroup
}

// NewProxy starts a Proxy that ends with the test.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	p := &Proxy{Address: "127.0.0.1:0", t: t, server: server}
	p.Start()
	t.Cleanup(func() { p.Stop(); p.tasks.Wait() })
	return p
}

// Start accepts connections, always at the same address.
func (p *Proxy) Start() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.Address)
	require.NoError(p.t, err)
	p.mu.Lock()
	p.listen, p.Address, p.down = l, l.Addr().String(), false
	p.mu.Unlock()
	p.tasks.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			p.pass(near)
		}
	})
}

func (p *Proxy) pass(near net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = near.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, near, server)
	if p.down {
		_, _ = near.Close(), server.Close()
	}
	p.mu.Unlock()
	for from, to := range map[net.Conn]net.Conn{near: server, server: near} {
		p.tasks.Go(func() {
			_, _ = io.Copy(onWay{to, p}, from)
			_ = to.Close()
		})
	}
}

// CutAfter closes all connections once n more bytes have passed, in both directions together.
// Connections that are made later are not cut.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// onWay is the end of a connection that receives bytes through a proxy.
type onWay struct {
	net.Conn
	p *Proxy
}

func (w onWay) Write(b []byte) (int, error) {
	p := w.p
	p.mu.Lock()
	left := p.left
	if left > 0 {
		p.left = max(left-int64(len(b)), 0)
	}
	p.mu.Unlock()
	if left == 0 || int64(len(b)) < left {
		return w.Conn.Write(b)
	}
	n, _ := w.Conn.Write(b[:left])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
	return n, net.ErrClosed
}

// Stop closes all connections and refuses new ones.
func (p *Proxy) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	_ = p.listen.Close()
	p.drop()
}

// drop ends all connections. mu must be held.
func (p *Proxy) drop() {
	for _, c := range p.conns {
		_ = c.Close()
	}
}
