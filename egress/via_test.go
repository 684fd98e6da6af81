package egress

import (
	"bufio"
	"encoding/base64"
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
)

// company is a proxy of a third party: it resolves names itself.
type company struct {
	*world
	server *httptest.Server
	mu     sync.Mutex
	got    []string
	auth   string
}

func (w *world) company(secure bool) *company {
	c := &company{world: w}
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	c.server.Config.ErrorLog = newQuiet()
	if secure {
		c.server.StartTLS()
		w.roots.AddCert(c.server.Certificate())
	} else {
		c.server.Start()
	}
	w.t.Cleanup(c.server.Close)
	return c
}

func (c *company) serve(rw http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.got = append(c.got, r.Method+" "+r.RequestURI)
	auth := c.auth
	c.mu.Unlock()
	if r.Header.Get("Proxy-Authorization") != auth {
		rw.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		_, _ = io.WriteString(rw, "by the company")
		return
	}
	c.world.mu.Lock()
	local := c.servers[address+":"+strings.Split(r.RequestURI, ":")[1]]
	c.world.mu.Unlock()
	up, err := net.Dial("tcp", local)
	if err != nil {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	down, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
	join(down, up)
}

func (c *company) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.got...)
}

func (w *world) via(c *company) func(*Options) {
	u, err := url.Parse(c.server.URL)
	require.NoError(w.t, err)
	w.at(u.Host, u.Host) // the dialer may connect to any address of it
	return func(o *Options) { o.Via = u }
}

func TestConnectionsGoThroughTheProxyOfTheCompany(t *testing.T) {
	for _, secure := range []bool{false, true} {
		w := newWorld(t)
		w.secure("example.com", text("secure"))
		w.raw("22", func(c net.Conn) { _, _ = io.WriteString(c, "hello") })
		c := w.company(secure)
		s := allow("example.com", "tcp:git.example.com:22", "private:wiki.example.com")
		s.Inject = []string{"example.com:X-Key=KEY"}
		b := w.box(s, w.via(c))
		assert.Equal(t, "secure", b.get("https://example.com/").body)
		assert.Equal(t, "by the company", b.get("http://example.com/x?y").body)
		raw, err := io.ReadAll(b.tunnel("git.example.com:22"))
		require.NoError(t, err)
		assert.Equal(t, "hello", string(raw), "bytes that the server sends with the answer aren't lost")
		assert.Equal(t, []string{"CONNECT example.com:443", "GET http://example.com/x?y", "CONNECT git.example.com:22"}, c.seen())
		resolved, _ := w.seen()
		assert.Empty(t, resolved, "the company resolves names")
		assert.Equal(t, 403, b.get("http://denied.example.com/").status)
		assert.Len(t, c.seen(), 3, "rules are ours")
		status, line, _ := b.send("CONNECT wiki.example.com:443 HTTP/1.1\r\n\r\n")
		assert.Equal(t, 502, status, line)
		resolved, _ = w.seen()
		assert.Equal(t, []string{"wiki.example.com."}, resolved, "a private host is reached directly")
	}
}

func TestTheCompanysProxyGetsItsPasswordAndProgramsDoNot(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("secure"))
	c := w.company(false)
	c.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte("me:pass word"))
	via := w.via(c)
	b := w.box(allow("example.com"), via, func(o *Options) {
		u := *o.Via
		u.User = url.UserPassword("me", "pass word")
		o.Via = &u
	})
	assert.Equal(t, "secure", b.get("https://example.com/").body)
	assert.Equal(t, "by the company", b.get("http://example.com/").body)
	assert.NotContains(t, w.journal.text(), "pass")

	b = w.box(allow("example.com"), via)
	status, line, _ := b.send("CONNECT example.com:443 HTTP/1.1\r\nProxy-Authorization: " + c.auth + "\r\n\r\n")
	assert.Equal(t, 502, status)
	assert.Contains(t, line, "the proxy of --egress-via answers 407")
}

func TestACompanysProxyThatIsOddIsABadGateway(t *testing.T) {
	w := newWorld(t)
	for what, serve := range map[string]func(net.Conn){
		"ends":    func(net.Conn) {},
		"garbage": func(c net.Conn) { _, _ = io.WriteString(c, "garbage\r\n\r\n") },
		"endless": func(c net.Conn) { _, _ = io.Copy(c, repeat{[]byte("HTTP/1.1 200 OK\r\nX-A: 1\r\n")}) },
		"silent":  func(c net.Conn) { _, _ = bufio.NewReader(c).ReadString(0) },
	} {
		w.raw("3128", serve)
		b := w.box(allow("example.com"), func(o *Options) {
			o.Via = &url.URL{Scheme: "http", Host: address + ":3128"}
			o.Bounds.Connect = 500 * time.Millisecond
		})
		status, line, _ := b.send("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
		assert.Equal(t, 502, status, what)
		assert.Contains(t, line, "--egress-via", what)
	}
}

func TestABadProxyOfTheCompanyStartsNothing(t *testing.T) {
	for _, bad := range []string{"socks5://a:1", "http://", "//a", "http://a/x", "http://a?x"} {
		u, err := url.Parse(bad)
		require.NoError(t, err)
		_, err = New(&Options{Via: u})
		assert.ErrorContains(t, err, "egress via", bad)
	}
	_, err := New(&Options{Via: &url.URL{Scheme: "ftp", Host: "a", User: url.UserPassword("me", "secret")}})
	assert.NotContains(t, err.Error(), "secret")
}
