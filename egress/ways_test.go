package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress/policy"
)

// ways are the ways of a program to an allowed host. Each opens a connection on which requests of a given target form
// may be sent.
type way struct {
	name string
	open func(host, port string) net.Conn
	form string // what stands before the path in a request
}

func (b *box) ways(t *testing.T, n *inner) []way {
	absolute := func(scheme string) way {
		return way{scheme + " in absolute form", func(string, string) net.Conn { return b.dialBox() }, scheme + "://{host}"}
	}
	tunnel := func(host, port string) net.Conn { return b.tunnel(host + ":" + port) }
	direct := func(host, port string) net.Conn {
		addrs, err := n.resolver().LookupNetIP(t.Context(), "ip4", host)
		require.NoError(t, err)
		c, err := n.dial(t.Context(), "tcp", addrs[0].Unmap().String()+":"+port)
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return []way{
		{"CONNECT", tunnel, ""}, absolute("http"), absolute("ws"), {"transparent", direct, ""},
		{"CONNECT, absolute form", tunnel, "http://{host}"}, {"transparent, absolute form", direct, "http://{host}"},
	}
}

// shows is a server that prints what came, and serves a WebSocket that echoes a line.
func shows(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprintf(rw, "%s %s host=%s upgrade=%q settings=%q auth=%q", r.Method, r.URL, r.Host, r.Header["Connection"], r.Header["Http2-Settings"], r.Header.Get("Authorization"))
		return
	}
	c, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\nConnection: Upgrade\r\n\r\n")
	line, _ := buf.ReadString('\n')
	_, _ = io.WriteString(c, "echo "+line)
}

// echoes speaks over a connection that was upgraded.
func echoes(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.WriteString(c, "hello\n")
	require.NoError(t, err)
	said, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, "echo hello\n", string(said))
}

func (w way) send(t *testing.T, c net.Conn, host, method, path string, headers ...string) *http.Response {
	t.Helper()
	raw := method + " " + strings.ReplaceAll(w.form, "{host}", host) + path + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, h := range headers {
		raw += h + "\r\n"
	}
	_, err := io.WriteString(c, raw+"\r\n")
	require.NoError(t, err, w.name)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	require.NoError(t, err, w.name)
	return resp
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(raw)
}

// TestTheWaysToAHostAcceptTheSame: which way a program takes depends on its library, and says nothing of what it may do.
func TestTheWaysToAHostAcceptTheSame(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", shows)
	w.web("api.example.com", shows)
	b, n, _ := w.started(policy.Settings{Allow: []string{"example.com", "api.example.com"}, Inject: []string{"api.example.com:Authorization=KEY,methods=GET|HEAD,path=/v1/"}})
	for _, way := range b.ways(t, n) {
		t.Run(way.name, func(t *testing.T) {
			c := way.open("example.com", "80")
			for range 2 { // on one connection
				resp := way.send(t, c, "example.com", "GET", "/x?y")
				assert.Equal(t, 200, resp.StatusCode)
				assert.Contains(t, bodyOf(t, resp), "GET /x?y host=example.com")
			}
			resp := way.send(t, c, "example.com", "POST", "/", "Content-Length: 0")
			assert.Contains(t, bodyOf(t, resp), "POST / ")
			resp = way.send(t, c, "other.example.com", "GET", "/")
			assert.Contains(t, []int{403, 421}, resp.StatusCode, "a request for another host")
			_ = bodyOf(t, resp)

			for _, offer := range [][]string{
				{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
				{"Connection: upgrade", "Upgrade: TLS/1.2, HTTP/2.0"},
				{"Upgrade: h2c", "HTTP2-Settings: AAMA"},
				{"Upgrade: websocket"}, // without the Connection it is none
			} {
				resp := way.send(t, way.open("example.com", "80"), "example.com", "GET", "/", offer...)
				assert.Equal(t, 200, resp.StatusCode, offer)
				assert.Contains(t, bodyOf(t, resp), `upgrade=[] settings=[] auth=""`, offer)
			}
			for _, list := range []string{"websocket", "WebSocket", "h2c, websocket"} {
				c := way.open("example.com", "80")
				resp := way.send(t, c, "example.com", "GET", "/", "Connection: keep-alive, Upgrade", "Upgrade: "+list, "Sec-WebSocket-Version: 13")
				require.Equal(t, 101, resp.StatusCode, list)
				assert.Equal(t, "websocket", resp.Header.Get("Upgrade"))
				echoes(t, c)
			}

			for request, status := range map[string]int{"GET /v1/x": 200, "POST /v1/x": 403, "GET /v2": 403, "TRACE /v1/x": 403} {
				method, path, _ := strings.Cut(request, " ")
				resp := way.send(t, way.open("api.example.com", "80"), "api.example.com", method, path, "Content-Length: 0")
				assert.Equal(t, status, resp.StatusCode, request)
				assert.NotContains(t, bodyOf(t, resp), "value-of-KEY", "never without TLS")
			}
			resp = way.send(t, way.open("api.example.com", "80"), "api.example.com", "GET", "/v1/", "Connection: Upgrade", "Upgrade: websocket")
			assert.Equal(t, 403, resp.StatusCode)
			assert.Contains(t, bodyOf(t, resp), "which a WebSocket would bypass")
			resp = way.send(t, way.open("api.example.com", "80"), "api.example.com", "GET", "/v1/", "Connection: Upgrade", "Upgrade: h2c")
			assert.Equal(t, 200, resp.StatusCode)
			_ = bodyOf(t, resp)
		})
	}
	eventually(t, func() bool { return len(w.journal.all("open")) == len(w.journal.all("close"))+len(b.allLinks()) }, "each connection is recorded")
}

// TestAnHTTPSRequestInAbsoluteFormGoesOverTLS: axios sends one to any proxy.
func TestAnHTTPSRequestInAbsoluteFormGoesOverTLS(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", shows)
	w.secure("api.example.com", shows)
	b := w.box(policy.Settings{Allow: []string{"example.com", "api.example.com"}, Inject: []string{"api.example.com:Authorization=KEY,methods=GET,path=/v1/"}})
	status, _, body := b.send("GET https://example.com/x HTTP/1.1\r\nHost: example.com\r\n\r\n")
	assert.Equal(t, 200, status)
	assert.Contains(t, body, "GET /x host=example.com")
	_, _, body = b.send("GET https://api.example.com:443/v1/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	assert.Contains(t, body, `auth="value-of-KEY"`)
	status, _, _ = b.send("POST https://api.example.com/v1/ HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0\r\n\r\n")
	assert.Equal(t, 403, status)
	status, _, body = b.send("GET https://other.example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n")
	assert.Equal(t, 403, status)
	assert.Contains(t, body, "to allow it: wisbox allow s1 other.example.com:443")
	c := b.dialBox()
	assert.Equal(t, 101, way{form: "wss://{host}"}.send(t, c, "example.com", "GET", "/", "Connection: Upgrade", "Upgrade: websocket").StatusCode)
	echoes(t, c)
}

// TestHeadersThatRenameARequestAreDropped wherever its method or path decides which secrets it gets.
func TestHeadersThatRenameARequestAreDropped(t *testing.T) {
	w := newWorld(t)
	w.secure("api.example.com", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.Header.Get("Authorization"), r.Header["X-Original-Url"], r.Header["X-Http-Method-Override"])
	})
	b := w.box(policy.Settings{Allow: []string{"api.example.com"}, Inject: []string{"api.example.com:Authorization=KEY,path=/v1/", "api.example.com:X-Free=FREE"}})
	status, _, body := b.send("GET https://api.example.com/v1/ HTTP/1.1\r\nHost: api.example.com\r\nX-Original-URL: /admin\r\nX-HTTP-Method-Override: DELETE\r\n\r\n")
	assert.Equal(t, 200, status)
	assert.Equal(t, "value-of-KEY[] []", body)
}

// TestAConnectionMadeForATunnelServesItsRequests: a server sees one connection, and it ends with the program's.
func TestAConnectionMadeForATunnelServesItsRequests(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", shows)
	b := w.box(allow("example.com"))
	c := b.tunnel("example.com:80")
	resp := way{}.send(t, c, "example.com", "GET", "/")
	assert.Equal(t, 200, resp.StatusCode)
	_ = bodyOf(t, resp)
	_, dialed := w.seen()
	assert.Len(t, dialed, 1)
	idle := b.tunnel("example.com:80") // nothing is ever requested
	_ = idle.Close()
	half := b.tunnel("example.com:80")
	_, err := io.WriteString(half, "GET ")
	require.NoError(t, err)
	_ = half.Close()
	_ = c.Close()
	b.direct.CloseIdleConnections()
	eventually(t, func() bool { return len(b.allLinks()) == 0 }, "no connection to a server stays")
}

func TestAnOldClientNeedsNoHost(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", shows)
	b := w.box(allow("example.com"))
	c := b.tunnel("example.com:80")
	_, err := io.WriteString(c, "GET /old HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	assert.Contains(t, bodyOf(t, resp), "GET /old host=example.com")
}

// TestASilentProgramIsNamed: a tunnel in which nothing comes is cut with a line that says so.
func TestASilentProgramIsNamed(t *testing.T) {
	w := newWorld(t)
	w.held("443")
	b, n, _ := w.started(allow("example.com"), func(o *Options) { o.Bounds.HeaderFor = 200 * time.Millisecond })
	for _, way := range b.ways(t, n) {
		if way.form != "" {
			continue
		}
		_, mark := b.Denied(0)
		_, err := way.open("example.com", "443").Read(make([]byte, 1))
		assert.ErrorContains(t, err, "reset", way.name)
		last, _ := b.Denied(mark)
		require.Len(t, last, 1, way.name)
		assert.Equal(t, "the program sent nothing for 200ms", last[0].Reason)
	}
}

// TestManyConnectionsAtOnceAreMade: a package manager opens a hundred.
func TestManyConnectionsAtOnceAreMade(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("secure"))
	b := w.box(allow("example.com"))
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			a, err := b.do(b.client(), "GET", "https://example.com/")
			if assert.NoError(t, err) {
				assert.Equal(t, "secure", a.body)
			}
		})
	}
	wg.Wait()
}

// TestTheSandboxsOwnPortsNeedNoRule: some programs ask the proxy for them in spite of NO_PROXY.
func TestTheSandboxsOwnPortsNeedNoRule(t *testing.T) {
	w := newWorld(t)
	b, n, _ := w.started(allow("example.com"))
	first, second, six := httptest.NewServer(http.HandlerFunc(shows)), httptest.NewServer(text("second")), httptest.NewServer(text("six"))
	for _, s := range []*httptest.Server{first, second, six} {
		t.Cleanup(s.Close)
	}
	n.serve("127.0.0.1:8000", first.Listener.Addr().String())
	n.serve("127.0.0.2:8000", second.Listener.Addr().String())
	n.serve("[::1]:9000", six.Listener.Addr().String())
	for host, want := range map[string]string{
		"localhost:8000": "GET / ", "LocalHost.:8000": "GET / ", "app.localhost:8000": "host=app.localhost:8000", "wisbox:8000": "GET / ",
		"127.0.0.1:8000": "host=127.0.0.1:8000", "0.0.0.0:8000": "host=0.0.0.0:8000", "[::]:8000": "GET / ", "[::ffff:127.0.0.1]:8000": "GET / ",
		"127.0.0.2:8000": "second", "0:8000": "GET / ", "127.1:8000": "GET / ", "2130706434:8000": "second", "0x7f.2:8000": "second", "0177.0.0.02:8000": "second",
		"[::1]:9000": "six", "localhost:9000": "six", "[::]:9000": "six", "[0:0:0:0:0:0:0:1]:9000": "six",
	} {
		status, _, body := b.send("GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nX-Forwarded-Proto: https\r\n\r\n")
		assert.Equal(t, 200, status, host)
		assert.Contains(t, body, want, host)
		resp := way{}.send(t, b.tunnel(host), host, "GET", "/")
		assert.Contains(t, bodyOf(t, resp), want, host)
	}
	for _, target := range []string{"127.0.0.1:8001", "127.0.0.3:8000", "localhost:1", "[::1]:8000"} {
		status, line, _ := b.send("CONNECT " + target + " HTTP/1.1\r\n\r\n")
		assert.Equal(t, 502, status, target)
		assert.Contains(t, line, "no program of the session listens there")
		status, _, body := b.send("GET http://" + target + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Equal(t, 502, status, target)
		assert.Contains(t, body, "no program of the session listens there")
	}
	for _, target := range []string{"10.0.0.1:80", "169.254.169.254:80", "[fe80::1]:80", "[::2]:80", "1.1:80", "128.0.0.1:80", "localhost.example.org:80", "256.0.0.1:80", "127.0.0.0.1:80", "0x7f.0x100000000:80", "127.-1:80", "127.0_0.1:80", "0b1:80", "[::ffff:10.0.0.1]:80", "host.wisbox:80"} {
		status, line, _ := b.send("CONNECT " + target + " HTTP/1.1\r\n\r\n")
		assert.Equal(t, 403, status, "%s %s", target, line)
	}
	status, _, _ := b.send("GET https://localhost:8000/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
	assert.Equal(t, 400, status)
	c := b.dialBox()
	resp := way{form: "ws://{host}"}.send(t, c, "0.0.0.0:8000", "GET", "/", "Connection: Upgrade", "Upgrade: anything")
	assert.Equal(t, "anything", resp.Header.Get("Upgrade"))
	echoes(t, c)
	assert.Empty(t, w.journal.all("open"), "it isn't traffic of the session")
	assert.Empty(t, b.Recorded())
	_, dialed := w.seen()
	assert.Empty(t, dialed, "and never this machine's")
}

// TestAdviceIsARuleThatWorks: a hint that is refused costs more than none.
func TestAdviceIsARuleThatWorks(t *testing.T) {
	w := newWorld(t)
	for host, advice := range map[string]string{
		"other.example.com": "other.example.com:8000", "xn--bcher-kva.de": "xn--bcher-kva.de:8000", "host.wisbox": "host:8000",
		"printer": "", "10.0.0.1": "", "[fe80::1]": "", "a..b": "", "x.wisbox": "", "-a.example.com": "",
	} {
		b := w.box(allow("example.com"))
		_, _, body := b.send("GET http://" + host + ":8000/ HTTP/1.1\r\nHost: x\r\n\r\n")
		last, _ := b.Denied(0)
		require.Len(t, last, 1, body)
		assert.Equal(t, advice, strings.TrimPrefix(last[0].Allow, "wisbox allow s1 "), host)
		if advice != "" {
			p, err := policy.Parse(allow(advice))
			require.NoError(t, err)
			assert.True(t, p.Decide(host, 8000).Allowed)
		}
	}
}

// TestAProgramMayUseItsOwnTLSToItself: the proxy doesn't look into the session's own connections.
func TestAProgramMayUseItsOwnTLSToItself(t *testing.T) {
	w := newWorld(t)
	b, n, _ := w.started(allow("example.com"))
	s := httptest.NewTLSServer(text("mine"))
	t.Cleanup(s.Close)
	n.serve("127.0.0.1:8443", s.Listener.Addr().String())
	proxy, err := url.Parse("http://" + b.addr)
	require.NoError(t, err)
	tr := s.Client().Transport.(*http.Transport)
	tr.Proxy, tr.DialContext = http.ProxyURL(proxy), nil
	tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	a, err := b.do(&http.Client{Transport: tr}, "GET", "https://0.0.0.0:8443/")
	require.NoError(t, err)
	assert.Equal(t, "mine", a.body)
}
