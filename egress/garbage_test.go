package egress

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGarbageHurtsNobody sends almost valid input from many programs, while one does its work.
func TestGarbageHurtsNobody(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("secure"))
	w.web("example.com", text("plain"))
	w.secure("api.example.com", echo)
	b, n, _ := w.started(injected("api.example.com:X-Key=KEY"), func(o *Options) {
		o.Bounds.Accepts, o.Bounds.Dials, o.Bounds.Requests, o.Bounds.HeaderFor = 100_000, 100_000, 100_000, 3*time.Second
	})
	addrs, err := n.resolver().LookupNetIP(t.Context(), "ip4", "api.example.com")
	require.NoError(t, err)
	inside := addrs[0].Unmap().String()
	hello := helloFor(t, &tls.Config{ServerName: "api.example.com"})
	seeds := [][]byte{
		hello, append([]byte("CONNECT example.com:443 HTTP/1.1\r\n\r\n"), hello...), append([]byte("CONNECT api.example.com:443 HTTP/1.1\r\n\r\n"), hello...),
		[]byte("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
		[]byte("POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
		[]byte("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"), make([]byte, 100_000),
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 60 {
				c := b.dialSomewhere(n, inside, r)
				if c == nil {
					continue
				}
				raw := append([]byte(nil), seeds[r.IntN(len(seeds))]...)
				for range r.IntN(4) {
					raw[r.IntN(len(raw))] = byte(r.IntN(256))
				}
				_, _ = c.Write(raw[:r.IntN(len(raw)+1)])
				if r.IntN(3) == 0 {
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
				}
				if r.IntN(2) == 0 {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
				_ = c.Close()
			}
		})
	}
	for range 20 {
		assert.Equal(t, "plain", b.get("http://example.com/").body)
		assert.Equal(t, "secure", b.get("https://example.com/").body)
		assert.Equal(t, 200, b.get("https://api.example.com/").status)
	}
	wg.Wait()
	b.client().CloseIdleConnections()
	eventually(t, func() bool { b.Proxy.mu.Lock(); defer b.Proxy.mu.Unlock(); return len(b.conns) < 80 }, "their connections are gone")
}

func (b *box) dialSomewhere(n *inner, inside string, r *rand.Rand) net.Conn {
	address := []string{"127.0.0.1:3128", inside + ":443", inside + ":80"}[r.IntN(3)]
	c, err := n.dial(b.t.Context(), "tcp", address)
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	return c
}
