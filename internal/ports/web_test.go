package ports_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/ports"
	"github.com/wisbox/wisbox/tool"
)

// site is a Web over a test's server, and a browser that resolves its name.
type site struct {
	t       *testing.T
	web     *ports.Web
	addr    string
	browser *http.Client
	end     context.CancelFunc
	ended   chan error
}

func newSite(t *testing.T, handler http.HandlerFunc, change ...func(*ports.WebOptions)) *site {
	t.Helper()
	opts := &ports.WebOptions{Session: "box", Port: 8000}
	if handler != nil {
		behind := httptest.NewServer(handler)
		t.Cleanup(behind.Close)
		opts.Dial = func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", behind.Listener.Addr().String())
		}
	}
	for _, c := range change {
		c(opts)
	}
	web, err := ports.ListenWeb(opts)
	require.NoError(t, err)
	u, err := url.Parse(web.URL())
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	s := &site{t: t, web: web, addr: "127.0.0.1:" + u.Port(), ended: make(chan error, 1)}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
	}}
	s.browser = &http.Client{Jar: jar, Transport: transport}
	var ctx context.Context
	ctx, s.end = context.WithCancel(t.Context())
	go func() { s.ended <- web.Serve(ctx) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.end()
		assert.NoError(t, <-s.ended)
	})
	return s
}

func (s *site) origin() string { before, _, _ := strings.Cut(s.web.URL(), "/?"); return before }

// get makes one request without a cookie, and returns the response.
func (s *site) get(target string, header ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+s.addr+target, nil)
	require.NoError(s.t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	require.NoError(s.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return res, string(body)
}

func (s *site) host() string { return strings.TrimPrefix(s.origin(), "http://") }

// enter opens the printed URL.
func (s *site) enter() string {
	s.t.Helper()
	res, err := s.browser.Get(s.web.URL())
	require.NoError(s.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return string(body)
}

// TestABrowserEntersByTheToken, and continues with a cookie that no script and no program of the
// session can read.
func TestABrowserEntersByTheToken(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "own", Value: "1"})
		fmt.Fprintf(w, "%s %s %s cookies=%q forwarded=%q", r.Method, r.Host, r.URL, r.Header.Get("Cookie"), r.Header.Get("X-Forwarded-For"))
	})
	token := strings.TrimPrefix(s.web.URL(), s.origin())
	first, _ := s.get("/a/b?x=1&"+strings.TrimPrefix(token, "/?"), "Host", s.host())
	assert.Equal(t, http.StatusSeeOther, first.StatusCode)
	assert.Equal(t, "/a/b?x=1", first.Header.Get("Location"))
	require.Len(t, first.Cookies(), 1)
	cookie := first.Cookies()[0]
	assert.True(t, cookie.HttpOnly)
	assert.Equal(t, http.SameSiteLaxMode, cookie.SameSite)
	assert.NotContains(t, token, cookie.Value)

	assert.Equal(t, fmt.Sprintf(`GET %s / cookies="" forwarded=""`, s.host()), s.enter())
	res, err := s.browser.Post(s.origin()+"/p?q=%zz;", "text/plain", strings.NewReader("x"))
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf(`POST %s /p?q=%%zz; cookies="own=1" forwarded=""`, s.host()), string(body))
}

// TestNobodyElseGetsIn: other names for this machine, pages of other sites, guesses.
func TestNobodyElseGetsIn(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		t.Error("a request came through")
	})
	entered, _ := s.get(strings.TrimPrefix(s.web.URL(), s.origin()), "Host", s.host())
	cookie := entered.Cookies()[0].String()
	port := s.host()[strings.LastIndexByte(s.host(), ':'):]
	for name, c := range map[string]struct {
		status int
		target string
		header []string
	}{
		"no token":              {401, "/", []string{"Host", s.host()}},
		"a wrong token":         {401, "/?wisbox_token=AAAA", []string{"Host", s.host()}},
		"a wrong one, cookie":   {401, "/?wisbox_token=AAAA", []string{"Host", s.host(), "Cookie", cookie}},
		"a wrong cookie":        {401, "/", []string{"Host", s.host(), "Cookie", "wisbox-port=AAAA"}},
		"the token as bearer":   {401, "/", []string{"Host", s.host(), "Authorization", "Bearer " + strings.Split(s.web.URL(), "=")[1]}},
		"a rebound name":        {403, "/", []string{"Host", "evil.example.com" + port, "Cookie", cookie}},
		"localhost":             {403, "/", []string{"Host", "localhost" + port, "Cookie", cookie}},
		"an address":            {403, "/", []string{"Host", "127.0.0.1" + port, "Cookie", cookie}},
		"another session":       {403, "/", []string{"Host", "other-8000.localhost" + port, "Cookie", cookie}},
		"a name below":          {403, "/", []string{"Host", "x." + s.host(), "Cookie", cookie}},
		"a page elsewhere":      {403, "/", []string{"Host", s.host(), "Cookie", cookie, "Origin", "http://evil.example.com"}},
		"another session's":     {403, "/", []string{"Host", s.host(), "Cookie", cookie, "Origin", "http://other-8000.localhost" + port}},
		"a WebSocket of a page": {403, "/", []string{"Host", s.host(), "Cookie", cookie, "Origin", "null", "Connection", "Upgrade", "Upgrade", "websocket"}},
	} {
		res, body := s.get(c.target, c.header...)
		assert.Equal(t, c.status, res.StatusCode, name)
		assert.NotEmpty(t, body, name)
		assert.Empty(t, res.Cookies(), name)
	}
	_, said := s.get("/", "Host", s.host())
	assert.Contains(t, said, "wisbox port")
	away, _ := s.get("//evil.example.com/x?"+strings.SplitN(s.web.URL(), "?", 2)[1], "Host", s.host())
	assert.Equal(t, "/evil.example.com/x", away.Header.Get("Location"), "the token leads nowhere else")
}

func TestTheHeadersOfAnAnswerAreBounded(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", strings.Repeat("a", 40<<10)) })
	entered, _ := s.get(strings.TrimPrefix(s.web.URL(), s.origin()), "Host", s.host())
	res, body := s.get("/", "Host", s.host(), "Cookie", entered.Cookies()[0].String())
	assert.Equal(t, 502, res.StatusCode)
	assert.Contains(t, body, "32 KiB of headers")
}

// TestAWebSocketIsPassedOn: bytes both ways after the upgrade, and it ends with the Web.
func TestAWebSocketIsPassedOn(t *testing.T) {
	gone := make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer close(gone)
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for line := ""; err == nil; line, err = in.ReadString('\n') {
			_, _ = io.WriteString(conn, line)
		}
	})
	s.enter()
	at, err := url.Parse(s.origin())
	require.NoError(t, err)
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nCookie: %s\r\n\r\n", s.host(), s.origin(), s.browser.Jar.Cookies(at)[0])
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	said, err := in.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "hello\n", said)
	s.end()
	_, err = io.ReadAll(in)
	require.NoError(t, err)
	<-gone
}

// TestWhatIsWrongIsAPage that describes what to do.
func TestWhatIsWrongIsAPage(t *testing.T) {
	for name, dial := range map[string]ports.Dial{
		"nothing listens on port 8000": func(context.Context) (net.Conn, error) {
			return nil, tool.Errorf(tool.NotFound, "nothing listens on port 8000")
		},
		"doesn't speak HTTP": func(context.Context) (net.Conn, error) {
			a, b := net.Pipe()
			go func() { _, _ = io.WriteString(b, "SSH-2.0\r\n"); b.Close() }()
			return a, nil
		},
	} {
		s := newSite(t, nil, func(o *ports.WebOptions) { o.Dial = dial })
		assert.Contains(t, s.enter(), name)
		res, err := s.browser.Get(s.origin())
		require.NoError(t, err)
		res.Body.Close()
		assert.Equal(t, http.StatusBadGateway, res.StatusCode)
	}
}

// TestAnotherServerOnTheOtherFamilyIsNotMistaken: a browser that resolves the name to ::1 would
// give it the token.
func TestAnotherServerOnTheOtherFamilyIsNotMistaken(t *testing.T) {
	squatter, err := net.Listen("tcp6", "[::1]:0")
	require.NoError(t, err)
	defer squatter.Close()
	at := squatter.Addr().(*net.TCPAddr).Port
	_, err = ports.ListenWeb(&ports.WebOptions{Session: "box", Port: 8000, At: at})
	require.ErrorContains(t, err, "in use")
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })
	_, port, _ := strings.Cut(s.host(), ":")
	s.addr = "[::1]:" + port
	assert.Equal(t, "here", s.enter())
}

func TestHostNamesFitAndDiffer(t *testing.T) {
	assert.Equal(t, "box-8000.localhost", ports.HostName("box", 8000))
	long := strings.Repeat("a", 62)
	one, other := ports.HostName(long+"b", 65535), ports.HostName(long+"c", 65535)
	assert.NotEqual(t, one, other)
	for _, name := range []string{one, other} {
		label, below, _ := strings.Cut(name, ".")
		assert.LessOrEqual(t, len(label), 63)
		assert.Equal(t, "localhost", below)
		assert.True(t, strings.HasSuffix(label, "-65535"), label)
	}
}
