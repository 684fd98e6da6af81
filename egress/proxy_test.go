package egress

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress/policy"
)

func newQuiet() *log.Logger { return log.New(io.Discard, "", 0) }

func TestAnAllowedHostIsReached(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", text("plain"))
	w.secure("example.com", text("secure"))
	b := w.box(allow("example.com"))
	assert.Equal(t, "plain", b.get("http://example.com/").body)
	a := b.get("https://example.com/")
	assert.Equal(t, "secure", a.body)
	assert.Equal(t, 2, a.proto)
	assert.Equal(t, []string{"example.com"}, b.Recorded())
}

func TestWithoutARuleNothingIsResolvedOrDialed(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("secure"))
	for _, s := range []policy.Settings{{}, allow("example.org")} {
		b := w.box(s)
		assert.Equal(t, 403, b.get("http://example.com/").status)
		_, err := b.do(b.client(), "GET", "https://example.com/")
		assert.ErrorContains(t, err, "Denied by wisbox: example.com:443: no rule allows it; to allow it: wisbox allow s1 example.com:443")
	}
	resolved, dialed := w.seen()
	assert.Empty(t, resolved)
	assert.Empty(t, dialed)
}

func TestTheCasesOfTheProxy(t *testing.T) {
	var c struct{ Rules, Allowed, Refused, Addresses []string }
	raw, err := os.ReadFile("../integration/testdata/cases/egress.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &c))
	w := newWorld(t)
	b := w.box(allow(c.Rules...), func(o *Options) { o.Bounds.Dials = 1000 })
	for _, target := range c.Refused {
		status, _, _ := b.send("CONNECT " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Contains(t, []int{400, 403}, status, target)
		if strings.ContainsAny(target, "?") {
			continue // in a URL the name would end there
		}
		status, _, _ = b.send("GET http://" + target + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Contains(t, []int{400, 403}, status, target)
	}
	resolved, dialed := w.seen()
	assert.Empty(t, resolved)
	assert.Empty(t, dialed)
	for _, target := range c.Allowed {
		status, line, _ := b.send("CONNECT " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Equal(t, 502, status, target)
		assert.Contains(t, line, "doesn't resolve", target)
	}
	for _, a := range c.Addresses {
		w.name("example.com", a)
		status, line, _ := b.send("CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Equal(t, 403, status, a)
		assert.Contains(t, line, "may not be reached", a)
		status, _, _ = b.send("GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Equal(t, 403, status, a)
	}
	_, dialed = w.seen()
	assert.Empty(t, dialed)
}

func TestADenialSaysWhyAndHowToAllowIt(t *testing.T) {
	w := newWorld(t)
	b := w.box(policy.Settings{Allow: []string{"example.com"}, Deny: []string{"no.example.com"}})
	a := b.get("http://www.example.com:8080/x?y")
	want := "www.example.com:8080: no rule allows it; to allow it: wisbox allow s1 www.example.com:8080"
	assert.Equal(t, 403, a.status)
	assert.Equal(t, want, a.header.Get("X-Wisbox-Denied"))
	assert.Equal(t, "Denied by wisbox: "+want+"\n", a.body)

	status, line, body := b.send("CONNECT example.com:22 HTTP/1.1\r\n\r\n")
	want = "example.com:22: the rules allow only its ports 80,443; to allow it: wisbox allow s1 example.com:22"
	assert.Equal(t, 403, status)
	assert.Equal(t, "403 Denied by wisbox: "+want, line)
	assert.Equal(t, "Denied by wisbox: "+want+"\n", body)

	_, line, _ = b.send("CONNECT no.example.com:443 HTTP/1.1\r\n\r\n")
	assert.Equal(t, "403 Denied by wisbox: no.example.com:443: the rule to deny no.example.com forbids it", line)
	w.name("example.com", "10.0.0.1")
	_, line, _ = b.send("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
	assert.Equal(t, "403 Denied by wisbox: example.com:443: the address may not be reached: 10.0.0.1 is in a private network; to allow it: wisbox allow s1 private:example.com:443", line)
	w.name("example.com", "169.254.169.254")
	_, line, _ = b.send("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
	assert.NotContains(t, line, "to allow it")

	last, mark := b.Denied(0)
	assert.Len(t, last, 5)
	assert.Equal(t, "no.example.com", last[2].Host)
	none, _ := b.Denied(mark)
	assert.Empty(t, none)
	for range 9 {
		b.send("CONNECT other.org:443 HTTP/1.1\r\n\r\n")
	}
	last, _ = b.Denied(mark)
	require.Len(t, last, 1, "equal ones are one")
	assert.Equal(t, "wisbox allow s1 other.org:443", last[0].Allow)

	b = w.box(policy.Settings{}, func(o *Options) { o.Session = "" })
	_, line, _ = b.send("CONNECT host.wisbox:80 HTTP/1.1\r\n\r\n")
	assert.Contains(t, line, "to allow it: --allow host:80")
}

func TestWhatAProgramSendsDoesNotGetIntoTheStatusLine(t *testing.T) {
	b := newWorld(t).box(policy.Settings{})
	for _, target := range []string{strings.Repeat("a.", 12_000) + "b:443", "a\xff\x01b:443", "a\"'<b>:443"} {
		c := b.dialBox()
		_, err := io.WriteString(c, "CONNECT "+target+" HTTP/1.1\r\n\r\n")
		require.NoError(t, err)
		raw, err := io.ReadAll(io.LimitReader(c, 100_000))
		require.NoError(t, err)
		assert.Less(t, len(raw), 3000)
		assert.Regexp(t, `^HTTP/1.1 40[03] `, string(raw))
		for _, r := range string(raw) {
			assert.True(t, r == '\r' || r == '\n' || r >= ' ' && r <= '~', "%q", r)
		}
	}
}

func TestANameIsResolvedOnceAndThatAddressIsDialed(t *testing.T) {
	w := newWorld(t)
	var asked atomic.Int32
	w.secure("example.com", text("ok"))
	b := w.box(allow("example.com"), func(o *Options) { o.Resolver = rebinding{w, &asked} })
	assert.Equal(t, "ok", b.get("https://example.com/").body)
	assert.EqualValues(t, 1, asked.Load())
	_, err := b.do(b.client(), "GET", "https://example.com/")
	assert.ErrorContains(t, err, "may not be reached: 127.0.0.1", "the second answer is a private one")
	_, dialed := w.seen()
	assert.Equal(t, []string{address + ":443"}, dialed)
	resolved, _ := w.seen()
	assert.Equal(t, []string{"example.com."}, resolved, "absolute: no search domains")
}

func TestOfManyAddressesOnlyThoseThatPassAreDialed(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("ok"))
	w.name("example.com", "127.0.0.1", "64:ff9b::a9fe:a9fe", "::ffff:10.0.0.1", "::ffff:"+address)
	b := w.box(allow("example.com"))
	assert.Equal(t, "ok", b.get("https://example.com/").body)
	_, dialed := w.seen()
	assert.Equal(t, []string{address + ":443"}, dialed)
}

func TestTheNextAddressIsTriedWhereOneDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("ok"))
	w.name("example.com", "93.184.216.1", address)
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Connect = 4 * time.Second })
	assert.Equal(t, "ok", b.get("https://example.com/").body)
	_, dialed := w.seen()
	assert.Equal(t, []string{"93.184.216.1:443", address + ":443"}, dialed)
}

func TestAServerThatDoesNotAnswerIsABadGateway(t *testing.T) {
	w := newWorld(t)
	w.name("example.com", address)
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Connect = 50 * time.Millisecond })
	status, line, _ := b.send("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
	assert.Equal(t, 502, status)
	assert.Equal(t, "502 Failed by wisbox: example.com:443: the server doesn't answer in time", line)
	a := b.get("http://example.com/")
	assert.Equal(t, 502, a.status)
	assert.Empty(t, a.header.Get("X-Wisbox-Denied"))
	last, _ := b.Denied(0)
	assert.Empty(t, last, "nobody denied it")
	assert.Len(t, w.journal.all("failed"), 2)
}

func TestATunnelIsForTheHostThatTheHelloNames(t *testing.T) {
	w := newWorld(t)
	got := make(chan string, 10)
	w.name("example.com", address)
	w.raw("443", func(c net.Conn) {
		raw, _ := io.ReadAll(c)
		got <- string(raw)
	})
	b := w.box(allow("example.com"))
	for what, hello := range map[string][]byte{
		"the TLS hello is for other.example.com": helloFor(t, &tls.Config{ServerName: "other.example.com"}),
		"names no host":                          helloFor(t, &tls.Config{ServerName: "1.2.3.4", InsecureSkipVerify: true}),
		"hides its host":                         withECH(helloFor(t, &tls.Config{ServerName: "example.com"})),
		"begins with neither TLS nor HTTP":       []byte("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"),
		"begins with HTTP/2 without TLS":         []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
	} {
		_, mark := b.Denied(0)
		c := b.tunnel("example.com:443")
		_, err := c.Write(hello)
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		assert.ErrorContains(t, err, "reset", what)
		assert.Empty(t, <-got, what)
		last, _ := b.Denied(mark)
		if assert.Len(t, last, 1, what) {
			assert.Contains(t, last[0].Reason, what)
		}
	}
	// One for the host passes, in parts and with the CONNECT.
	hello := helloFor(t, &tls.Config{ServerName: "EXAMPLE.com"})
	c := b.tunnel("example.com:443").(*net.TCPConn)
	for _, part := range []string{string(hello[:3]), string(hello[3:100]), string(hello[100:])} {
		_, err := io.WriteString(c, part)
		require.NoError(t, err)
	}
	require.NoError(t, c.CloseWrite())
	assert.Equal(t, string(hello), <-got)
	c = b.dialBox()
	_, err := io.WriteString(c, "CONNECT example.com:443 HTTP/1.1\r\n\r\n"+string(hello))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	assert.Equal(t, string(hello), <-got)
}

func TestATCPRulePassesAnyBytes(t *testing.T) {
	w := newWorld(t)
	w.name("example.com", address)
	w.raw("22", func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-hello\r\n") // the server speaks first
		_, _ = io.Copy(c, c)
	})
	b := w.box(allow("tcp:example.com:22"))
	c := b.tunnel("example.com:22").(*net.TCPConn)
	_, err := io.WriteString(c, "hi")
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	raw, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, "SSH-2.0-hello\r\nhi", string(raw))
	eventually(t, func() bool { return len(w.journal.all("close")) == 1 }, "the end is in the log")
	l := w.journal.all("close")[0]
	assert.EqualValues(t, 17, l.In)
	assert.EqualValues(t, 2, l.Out)
	assert.Equal(t, address+":22", l.Address)
	assert.Equal(t, []string{"tcp:example.com:22"}, b.Recorded())
}

func TestAPortOfThisMachineIsReachedByItsRuleAlone(t *testing.T) {
	w := newWorld(t)
	s, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: text("mine"), ErrorLog: newQuiet()}
	done := make(chan error)
	go func() { done <- server.Serve(s) }()
	t.Cleanup(func() {
		_ = server.Close()
		assert.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	_, port, _ := net.SplitHostPort(s.Addr().String())
	own := func(o *Options) { o.Dialer = nil } // the default dialer, with its own check
	b := w.box(allow("host:"+port), own)
	assert.Equal(t, "mine", b.get("http://host.wisbox:"+port+"/").body)
	assert.Equal(t, 403, b.get("http://host.wisbox:1/").status)
	assert.Equal(t, 403, b.get("http://127.0.0.1:"+port+"/").status)
	assert.Equal(t, []string{"host:" + port}, b.Recorded())
}

func TestThisProcessesDialerLooksAtTheAddressOnceMore(t *testing.T) {
	for _, reach := range []policy.Reach{policy.Public, policy.Private} {
		assert.ErrorIs(t, checkAgain(policy.Decision{Reach: reach}, "127.0.0.1:443"), policy.ErrAddress)
		assert.ErrorIs(t, checkAgain(policy.Decision{Reach: reach}, "[::1]:443"), policy.ErrAddress)
		assert.ErrorIs(t, checkAgain(policy.Decision{Reach: reach}, "nonsense"), policy.ErrAddress)
		assert.NoError(t, checkAgain(policy.Decision{Reach: reach}, address+":443"))
	}
	assert.ErrorIs(t, checkAgain(policy.Decision{Reach: policy.Host}, address+":443"), policy.ErrAddress)
	assert.NoError(t, checkAgain(policy.Decision{Reach: policy.Host}, "127.0.0.1:443"))
}

func TestOnlyAProxysRequestsAreAnswered(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", text("plain"))
	b := w.box(allow("example.com"))
	for _, raw := range []string{
		"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"GET http://user:pw@example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"GET ftp://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"GET http:example.com HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"CONNECT example.com HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"CONNECT /x HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"GET http://example.com:/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x00\x05hello\r\n\r\n",
	} {
		status, _, _ := b.send(raw)
		assert.Contains(t, []int{400, 505}, status, raw)
	}
	_, dialed := w.seen()
	assert.Empty(t, dialed)
}

func TestARedirectIsThePrograms(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://10.0.0.1/", http.StatusFound)
	})
	b := w.box(allow("example.com"))
	a := b.get("http://example.com/")
	assert.Equal(t, 302, a.status)
	assert.Equal(t, 403, b.get(a.header.Get("Location")).status)
}

func TestAnEncodedBodyStaysEncoded(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		rw.Header().Set("Alt-Svc", `h3=":443"`)
		_, _ = io.WriteString(rw, "a bomb, or not: "+r.Header.Get("Accept-Encoding"))
	})
	b := w.box(allow("example.com"))
	a := b.get("http://example.com/", "Accept-Encoding", "gzip")
	assert.Equal(t, "a bomb, or not: gzip", a.body)
	assert.Empty(t, a.header.Get("Alt-Svc"))
}

func TestAWebSocketPasses(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", func(rw http.ResponseWriter, r *http.Request) {
		c, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\nConnection: Upgrade\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(c, "echo "+line)
	})
	b := w.box(allow("example.com"))
	c := b.dialBox()
	_, err := io.WriteString(c, "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)
	_, err = io.WriteString(c, "hello\n")
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "echo hello\n", line)
}
