package egress

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchPaths runs a benchmark over each way to one server: directly, and through the proxy.
func benchPaths(b *testing.B, run func(b *testing.B, c *http.Client, url string)) {
	w := newWorld(b)
	handler := func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			rw.Header().Set("Content-Length", "67108864")
			_, _ = io.Copy(rw, io.LimitReader(repeat{make([]byte, 64<<10)}, 64<<20))
		}
	}
	w.web("example.com", handler)
	w.secure("example.com", handler)
	w.secure("api.example.com", handler)
	free := func(o *Options) {
		o.Bounds = Bounds{Rate: 1 << 40, In: 1 << 50, Out: 1 << 50, Dials: 100_000, Requests: 1_000_000}
		o.Journal = nil
	}
	p := w.box(injected("api.example.com:X-Key=KEY"), free)
	roots := w.roots.Clone()
	roots.AppendCertsFromPEM(p.Roots())
	direct := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DialContext: w.DialContext}
	straight := &http.Client{Transport: direct}
	b.Cleanup(direct.CloseIdleConnections)
	proxied := p.client()
	proxied.Timeout = 0
	proxied.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	proxied.Transport.(*http.Transport).TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	b.Run("straight", func(b *testing.B) { run(b, straight, "http://"+address) })
	b.Run("plain", func(b *testing.B) { run(b, proxied, "http://example.com") })
	b.Run("straight-tls", func(b *testing.B) {
		tr := direct.Clone()
		tr.TLSClientConfig.ServerName = "example.com"
		defer tr.CloseIdleConnections()
		run(b, &http.Client{Transport: tr}, "https://"+address)
	})
	b.Run("tunnel", func(b *testing.B) { run(b, proxied, "https://example.com") })
	b.Run("terminated", func(b *testing.B) { run(b, proxied, "https://api.example.com") })
}

func fetch(b *testing.B, c *http.Client, url string) {
	resp, err := c.Get(url)
	require.NoError(b, err)
	defer resp.Body.Close()
	require.Equal(b, 200, resp.StatusCode)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(b, err)
}

// BenchmarkRate fetches 64 MiB at a time.
func BenchmarkRate(b *testing.B) {
	benchPaths(b, func(b *testing.B, c *http.Client, url string) {
		b.SetBytes(64 << 20)
		for b.Loop() {
			fetch(b, c, url+"/big")
		}
	})
}

// BenchmarkKeptConnection makes small requests over one connection.
func BenchmarkKeptConnection(b *testing.B) {
	benchPaths(b, func(b *testing.B, c *http.Client, url string) {
		fetch(b, c, url+"/")
		for b.Loop() {
			fetch(b, c, url+"/")
		}
	})
}

// BenchmarkRawTunnel copies without HTTP and TLS around it.
func BenchmarkRawTunnel(b *testing.B) {
	const size = 64 << 20
	w := newWorld(b)
	w.name("example.com", address)
	w.raw("22", func(c net.Conn) {
		one := make([]byte, 1)
		for {
			if _, err := io.ReadFull(c, one); err != nil {
				return
			}
			_, _ = io.Copy(c, io.LimitReader(repeat{make([]byte, 64<<10)}, size))
		}
	})
	p := w.box(allow("tcp:example.com:22"), func(o *Options) {
		o.Bounds, o.Journal = Bounds{Rate: 1 << 40, In: 1 << 50, Out: 1 << 50, Dials: 100_000, Requests: 1_000_000}, nil
	})
	copyAll := func(b *testing.B, c net.Conn) {
		b.SetBytes(size)
		_ = c.SetDeadline(time.Time{})
		for b.Loop() {
			_, err := c.Write([]byte{1})
			require.NoError(b, err)
			_, err = io.CopyN(io.Discard, onlyReader{c}, size)
			require.NoError(b, err)
		}
	}
	b.Run("straight", func(b *testing.B) {
		c, err := w.DialContext(b.Context(), "tcp", address+":22")
		require.NoError(b, err)
		defer c.Close()
		copyAll(b, c)
	})
	b.Run("tunnel", func(b *testing.B) { copyAll(b, p.tunnel("example.com:22")) })
}

// BenchmarkDecide asks a policy with many rules.
func BenchmarkDecide(b *testing.B) {
	p := mustParse(b, "python", "node", "debian", "git:read", "go", "rust", "*.example.org", "public")
	for b.Loop() {
		if !p.Decide("www.example.com", 443).Allowed {
			b.Fatal("denied")
		}
	}
}
