package egress

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/audit"
)

// held lets servers keep connections until the test ends.
func (w *world) held(port string) {
	w.name("example.com", address)
	w.raw(port, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

func TestAFloodOfConnectionsTakesNoMoreThanItsPlaces(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", text("plain"))
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Conns = 10 })
	var open []net.Conn
	for range 300 {
		open = append(open, b.dialBox())
	}
	eventually(t, func() bool {
		b.Proxy.mu.Lock()
		defer b.Proxy.mu.Unlock()
		require.LessOrEqual(t, len(b.conns), 10)
		return len(b.conns) == 10 && len(b.places) == 10 // a connection takes its slot before it is served
	}, "the places are taken")
	eventually(t, func() bool { return w.journal.slowed("10 connections of programs are open; they wait") }, "the log says so")
	for _, c := range open {
		_ = c.Close()
	}
	assert.Equal(t, "plain", b.get("http://example.com/").body, "and free again")
}

func TestConnectionsToServersAreBounded(t *testing.T) {
	w := newWorld(t)
	w.held("22")
	b := w.box(allow("tcp:example.com:22"), func(o *Options) { o.Bounds.Dials, o.Bounds.Queue = 2, 200*time.Millisecond })
	failed := 0
	for range 20 {
		status, line, _ := func() (int, string, string) {
			c := b.dialBox()
			_, err := io.WriteString(c, "CONNECT example.com:22 HTTP/1.1\r\n\r\n")
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
			require.NoError(t, err)
			return resp.StatusCode, resp.Status, ""
		}()
		if status == 502 {
			if strings.Contains(line, "doesn't answer in time") {
				continue // a busy machine took that long for a successful one
			}
			assert.Contains(t, line, "too many new connections: this one waited 200ms for its turn")
			failed++
		}
	}
	assert.Positive(t, failed)
	assert.Less(t, failed, 20)
	assert.True(t, w.journal.slowed("more than 2 new connections to servers a second; they wait"))
}

func TestWhatGoesOutIsBounded(t *testing.T) {
	w := newWorld(t)
	w.held("22")
	b := w.box(allow("tcp:example.com:22"), func(o *Options) { o.Bounds.Out = 100_000 })
	c := b.tunnel("example.com:22")
	_, err := io.Copy(c, io.LimitReader(repeat{make([]byte, 1000)}, 10_000_000))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	assert.Error(t, err, "it was reset")
	assert.NotErrorIs(t, err, io.EOF)
	eventually(t, func() bool { return len(w.journal.all("close")) == 1 }, "the end is in the log")
	l := w.journal.all("close")[0]
	assert.LessOrEqual(t, l.Out, int64(100_000))
	assert.Equal(t, "the session has sent its 100000 bytes", l.Reason)
	last, _ := b.Denied(0)
	require.Len(t, last, 1, "the running call gets the reason of the reset")
	assert.Contains(t, last[0].String(), "example.com:22: the session has sent its 100000 bytes; --egress-out")
	assert.Empty(t, last[0].Allow, "it is allowed")
	status, line, _ := b.send("CONNECT example.com:22 HTTP/1.1\r\n\r\n")
	assert.Equal(t, 403, status)
	assert.Contains(t, line, "has sent its 100000 bytes; --egress-out SIZE sets another limit")

	next := w.box(allow("tcp:example.com:22"), func(o *Options) { o.Bounds.Out, o.Before = 100_000, b.Traffic() })
	status, _, _ = next.send("CONNECT example.com:22 HTTP/1.1\r\n\r\n")
	assert.Equal(t, 403, status, "another proxy of the session goes on from there")
}

func TestRequestsAreBounded(t *testing.T) {
	w := newWorld(t)
	b := w.box(policy.Settings{}, func(o *Options) { o.Bounds.Requests = 20 })
	c := b.client()
	began := time.Now()
	for range 60 {
		a, err := b.do(c, "GET", "http://example.com/")
		require.NoError(t, err)
		assert.Equal(t, 403, a.status)
	}
	assert.Greater(t, time.Since(began), 700*time.Millisecond, "40 come at once, the others 20 a second")
	assert.True(t, w.journal.slowed("more than 20 requests a second; they wait"))
}

func TestNewConnectionsOfProgramsAreBounded(t *testing.T) {
	w := newWorld(t)
	b := w.box(policy.Settings{}, func(o *Options) { o.Bounds.Accepts = 20 })
	began := time.Now()
	for range 40 {
		b.send("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
	}
	assert.Greater(t, time.Since(began), 700*time.Millisecond, "20 come at once, the others 20 a second")
	assert.True(t, w.journal.slowed("more than 20 new connections of programs a second; they wait"))
}

func TestWhatComesInIsBounded(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(rw, io.LimitReader(repeat{make([]byte, 1000)}, 10_000_000))
	})
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.In = 100_000 })
	a, err := b.do(b.client(), "GET", "http://example.com/")
	assert.Error(t, err, "an answer that was cut is not an answer")
	assert.LessOrEqual(t, len(a.body), 100_000)
}

func TestTheRateIsBounded(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(rw, io.LimitReader(repeat{make([]byte, 1000)}, 2_000_000))
	})
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Rate = 1_000_000 })
	began := time.Now()
	assert.Len(t, b.get("http://example.com/").body, 2_000_000)
	assert.Greater(t, time.Since(began), 700*time.Millisecond, "what is in the bucket comes at once, the rest takes its time")
	assert.True(t, w.journal.slowed("more than 1000000 bytes a second; they wait"))
}

func TestSlowProgramsAreCut(t *testing.T) {
	w := newWorld(t)
	w.held("443")
	b := w.box(policy.Settings{Allow: []string{"example.com"}, Inject: []string{"example.com:X-Key=KEY"}}, func(o *Options) { o.Bounds.HeaderFor = time.Second })
	for what, c := range map[string]net.Conn{"terminated": b.tunnel("example.com:443"), "headers": b.dialBox(), "nothing": b.dialBox()} {
		if what == "headers" {
			_, err := io.WriteString(c, "GET http://example.com/ HTTP/1.1\r\nX-A:")
			require.NoError(t, err)
		}
		_, err := io.ReadAll(c)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, what)
	}
	b = w.box(allow("example.com"), func(o *Options) { o.Bounds.HeaderFor = time.Second })
	c := b.tunnel("example.com:443")
	_, err := c.Write([]byte{0x16})
	require.NoError(t, err)
	_, err = io.ReadAll(c)
	assert.ErrorContains(t, err, "reset", "a hello that doesn't end")
}

func TestIdleConnectionsEnd(t *testing.T) {
	w := newWorld(t)
	w.held("22")
	b := w.box(allow("tcp:example.com:22"), func(o *Options) { o.Bounds.Idle = time.Second })
	c := b.tunnel("example.com:22")
	_, err := c.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "reset")
	eventually(t, func() bool { return len(w.journal.all("close")) == 1 }, "the end is in the log")
}

func TestLongHeadersAreRefused(t *testing.T) {
	b := newWorld(t).box(allow("example.com"))
	status, _, _ := b.send("GET http://example.com/ HTTP/1.1\r\nX-A: " + strings.Repeat("a", 80<<10) + "\r\n\r\n")
	assert.Equal(t, 431, status)
}

func TestLongHeadersOfAnAnswerAreRefused(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("X-A", strings.Repeat("a", 80<<10)) })
	status, _, _ := w.box(allow("example.com")).send("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n")
	assert.Equal(t, 502, status)
}

// fields are many headers, which take more memory than their text.
func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d:\r\n", i)
	}
	return b.String()
}

func TestTheHeadersOfAllRequestsAndAnswersAreBounded(t *testing.T) {
	w := newWorld(t)
	come, leave := make(chan bool, 1), make(chan bool)
	w.web("example.com", func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			come <- true
			<-leave
		case "/many":
			for i := range 300 {
				rw.Header().Set(fmt.Sprintf("X-%d", i), "")
			}
		}
	})
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Headers = 100_000 })
	request := func(path string, n int) string {
		return "GET http://example.com" + path + " HTTP/1.1\r\nHost: example.com\r\n" + fields(n) + "\r\n"
	}
	first := b.dialBox()
	_, err := io.WriteString(first, request("/hangs", 200))
	require.NoError(t, err)
	<-come
	for _, raw := range []string{request("/", 200), "CONNECT example.com:443 HTTP/1.1\r\n" + fields(200) + "\r\n"} {
		status, _, body := b.send(raw)
		assert.Equal(t, 502, status)
		assert.Contains(t, body, "take too much memory together")
	}
	status, _, body := b.send(request("/", 100))
	assert.Equal(t, 200, status, body)
	status, _, body = b.send(request("/many", 0))
	assert.Equal(t, 502, status, "headers of answers count too")
	assert.Contains(t, body, "take too much memory together")
	close(leave)
	status, _, _ = readAnswer(t, bufio.NewReader(first))
	assert.Equal(t, 200, status)
	eventually(t, func() bool { return b.headers.Load() == 0 }, "all is given back")
	status, _, body = b.send(request("/", 300))
	assert.Equal(t, 200, status, body)
}

func TestANewPolicyCutsWhatItDoesNotAllowAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.held("22")
	w.raw("2222", func(c net.Conn) { _, _ = io.Copy(c, c) })
	b := w.box(allow("tcp:example.com:22,2222"))
	cut, stays := b.tunnel("example.com:22"), b.tunnel("example.com:2222")
	less, err := policy.Parse(allow("tcp:example.com:2222"))
	require.NoError(t, err)
	require.NoError(t, b.SetPolicy(less))
	_, err = cut.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "reset")
	_, err = io.WriteString(stays, "hi")
	require.NoError(t, err)
	raw := make([]byte, 2)
	_, err = io.ReadFull(stays, raw)
	require.NoError(t, err)
	assert.Equal(t, "hi", string(raw))
	status, _, _ := b.send("CONNECT example.com:22 HTTP/1.1\r\n\r\n")
	assert.Equal(t, 403, status)
	bounded, err := policy.Parse(allow("example.com:2222"))
	require.NoError(t, err)
	require.NoError(t, b.SetPolicy(bounded))
	_, err = stays.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "reset", "arbitrary bytes are no longer allowed")
}

// TestAPolicyThatChangesWhileConnectionsAreMade leaves only connections that the last policy allows.
func TestAPolicyThatChangesWhileConnectionsAreMade(t *testing.T) {
	w := newWorld(t)
	w.held("22")
	b := w.box(allow("tcp:example.com:22"), func(o *Options) { o.Bounds.Dials = 10_000 })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 10 {
				l, err := b.dial(b.ctx, "connect", "example.com", 22)
				if err == nil {
					defer l.Close()
				}
			}
		})
	}
	require.NoError(t, b.SetPolicy(nil))
	for range 20 {
		wg.Go(func() { _, _ = b.dial(b.ctx, "connect", "example.com", 22) })
	}
	eventually(t, func() bool { return len(b.allLinks()) == 0 }, "all are cut")
	wg.Wait()
}

func TestCloseEndsEverything(t *testing.T) {
	w := newWorld(t)
	w.held("22")
	b := w.box(allow("tcp:example.com:22", "example.com"))
	c, idle := b.tunnel("example.com:22"), b.dialBox()
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	for _, open := range []net.Conn{c, idle} {
		_, err := open.Read(make([]byte, 1))
		assert.ErrorContains(t, err, "reset")
	}
	_, err := net.Dial("tcp", b.addr)
	assert.ErrorContains(t, err, "refused", "the port dies with the proxy")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	assert.ErrorIs(t, b.Serve(l), net.ErrClosed)
	assert.Len(t, w.journal.all("close"), 1)
	assert.ErrorIs(t, b.write(Line{}), net.ErrClosed, "nothing is appended afterwards")
}

func TestARecorderOutlivesItsProxy(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", text("x"))
	w.web("example.org", text("x"))
	var r policy.Recorder
	for _, url := range []string{"http://example.org/", "http://example.com/"} {
		b := w.box(policy.Settings{Record: true}, func(o *Options) { o.Recorder = &r })
		assert.Equal(t, 200, b.get(url).status)
		assert.Equal(t, 502, b.get("http://none.example.com/").status)
		require.NoError(t, b.Close())
	}
	assert.Equal(t, []string{"example.com:80", "example.org:80"}, r.Rules(), "a missing file isn't needed")
}

func TestEqualDenialsAreOneLineAndMadeUpNamesAreFew(t *testing.T) {
	w := newWorld(t)
	b := w.box(policy.Settings{})
	for range 1000 {
		b.note("connect", notAllowed(b.decide("example.com", 443)))
	}
	require.Len(t, w.journal.all("denied"), 1)
	for i := range 5000 {
		b.note("dns", notAllowed(b.decide(fmt.Sprintf("a%d.example.com", i), 443)))
	}
	assert.Less(t, len(w.journal.all("denied")), maxEqual+3)
	b.flush(true)
	var count int64
	for _, l := range w.journal.all("denied") {
		count += max(l.Count, 1)
	}
	assert.Contains(t, w.journal.text(), `"reason":"many hosts"`)
	assert.GreaterOrEqual(t, count, int64(5900))
}

func TestRequestsDoNotRotateConnectionsAway(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", text("x"))
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Lines = 1 })
	c := b.client()
	for range 200 {
		_, err := b.do(c, "GET", "http://example.com/secret?query")
		require.NoError(t, err)
	}
	lines := w.journal.all("request")
	assert.Less(t, len(lines), 120)
	assert.GreaterOrEqual(t, len(lines), 50)
	assert.NotContains(t, w.journal.text(), "secret", "a connection that isn't terminated has no path")
}

func TestTheLogIsAChain(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("x"))
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	log, err := audit.Open(root, "egress.jsonl", nil)
	require.NoError(t, err)
	b := w.box(allow("example.com"), func(o *Options) {
		o.Journal = log
		o.Calls = func() []string { return []string{"call-1"} }
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := b.do(b.client(), "GET", "https://example.com/")
			assert.NoError(t, err)
			_, _ = b.do(b.client(), "GET", "https://denied.example.com/")
		})
	}
	wg.Wait()
	require.NoError(t, b.Close())
	require.NoError(t, log.Close())
	report, err := audit.Verify(root, "egress.jsonl")
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
	assert.Equal(t, 8+8+1+1, report.Records, "open, close, one denial, and how often it came again")
	raw, err := os.ReadFile(dir + "/egress.jsonl")
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"session":"s1","calls":["call-1"],"event":"open","kind":"connect","host":"example.com","port":443,"address":"93.184.216.34:443","rule":"example.com"`)
}

func TestWithoutItsLogNoConnectionIsMade(t *testing.T) {
	w := newWorld(t)
	w.secure("example.com", text("x"))
	b := w.box(allow("example.com"))
	w.journal.mu.Lock()
	w.journal.fail = errors.New("no space")
	w.journal.mu.Unlock()
	_, err := b.do(b.client(), "GET", "https://example.com/")
	assert.ErrorContains(t, err, "the log of connections can't be written")
	assert.Empty(t, b.allLinks())
}

func TestALotGoesThrough(t *testing.T) {
	w := newWorld(t)
	const size = 200 << 20
	w.secure("example.com", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(rw, io.LimitReader(repeat{make([]byte, 64<<10)}, size))
	})
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Rate = 10 << 30 })
	c := tls.Client(b.tunnel("example.com:443"), &tls.Config{ServerName: "example.com", RootCAs: w.roots})
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Minute))) // it is slow with the race detector
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.EqualValues(t, size, n)
}
