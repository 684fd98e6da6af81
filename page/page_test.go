package page_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/page"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a server with its own state root, and a browser that hasn't signed in yet.
type site struct {
	t       *testing.T
	m       *wisbox.Manager
	server  *page.Server
	base    string // without a slash at its end
	host    string
	browser *http.Client
	token   string
	entered chan string
}

func newSite(t *testing.T, change ...func(*page.Options)) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "wb") // short enough for sockets
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	host, root := sandboxtest.NewHost(), filepath.Join(t.TempDir(), "state")
	opts := &wisbox.Options{Backend: host, CacheDir: root}
	m, err := wisbox.NewManager(t.Context(), opts)
	require.NoError(t, err)
	store, err := overlay.OpenStore(root)
	require.NoError(t, err)
	s := &site{t: t, m: m, entered: make(chan string, 8)}
	o := &page.Options{Manager: m, Store: store, Version: "test", Entered: func(next string) { s.entered <- next }}
	for _, c := range change {
		c(o)
	}
	s.server, err = page.Listen(o)
	require.NoError(t, err)
	u, err := url.Parse(s.server.URL())
	require.NoError(t, err)
	s.host, s.base = u.Host, strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	s.browser = &http.Client{Jar: jar, Transport: s.transport()}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-served)
		assert.NoError(t, m.Close())
		assert.NoError(t, store.Close())
		left, err := host.List(context.Background())
		assert.NoError(t, err)
		for _, info := range left { // kept sessions' sandboxes stay
			assert.NoError(t, host.Remove(context.Background(), info.ID))
		}
	})
	return s
}

// held returns a manager whose session box is held by another one, as if by another process.
func held(t *testing.T, holder *wisbox.Manager, root string) *wisbox.Manager {
	t.Helper()
	s, err := holder.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- holder.Hold(ctx, "box", time.Hour, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal("no holder: ", err)
	}
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{
		Backend: holder.Backend(), CacheDir: root, Holder: []string{"/bin/false"},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		cancel()
		assert.NoError(t, <-ended)
	})
	return m
}

// transport resolves the page's name, as a browser does.
func (s *site) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: dialer(s.server.Address().String())}
}

// enter signs the browser in.
func (s *site) enter() {
	s.t.Helper()
	res, body := s.do(s.browser, http.MethodPost, "/api/enter", fmt.Sprintf(`{"key":%q}`, keyOf(s.server.URL())))
	require.Equal(s.t, http.StatusOK, res.StatusCode, body)
	var me struct{ Token string }
	require.NoError(s.t, json.Unmarshal([]byte(body), &me))
	s.token = me.Token
}

func keyOf(at string) string { return at[strings.Index(at, "#key=")+len("#key="):] }

const tokenHeader = "X-Wisbox-Token"

// do sends one request with the browser's token, as its page does. header lists names and values; Host sets the
// request's host.
func (s *site) do(client *http.Client, method, path, body string, header ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	if client == s.browser && r.Header.Values(tokenHeader) == nil {
		r.Header.Set(tokenHeader, s.token)
	}
	res, err := client.Do(r)
	require.NoError(s.t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return res, string(got)
}

// ask sends a request like the page's that must succeed, and decodes the answer.
func (s *site) ask(method, path, body string, into any) {
	s.t.Helper()
	res, got := s.do(s.browser, method, path, body, "Origin", s.origin())
	require.Equal(s.t, http.StatusOK, res.StatusCode, "%s %s: %s", method, path, got)
	if into != nil {
		require.NoError(s.t, json.Unmarshal([]byte(got), into), got)
	}
}

// refused sends a request like the page's that must fail, and returns the kind of the error.
func (s *site) refused(method, path, body string) string {
	s.t.Helper()
	res, got := s.do(s.browser, method, path, body)
	require.NotEqual(s.t, http.StatusOK, res.StatusCode, "%s %s: %s", method, path, got)
	var out struct {
		Error struct{ Kind, Message string }
	}
	require.NoError(s.t, json.Unmarshal([]byte(got), &out), got)
	assert.NotEmpty(s.t, out.Error.Message)
	return out.Error.Kind
}

func (s *site) origin() string { return "http://" + s.host }

// box creates a session with steps and a first file.
func (s *site) box(name string) {
	s.t.Helper()
	s.ask("POST", "/api/sessions", fmt.Sprintf(`{"name":%q,"steps":true}`, name), nil)
	s.ask("PUT", "/api/sessions/"+name+"/file?path=a.txt", `{"text":"one\n","was":""}`, nil)
}

// TestOnlyWhoHasTheKeyComesIn, once, and then with a cookie that scripts can't see.
func TestOnlyWhoHasTheKeyComesIn(t *testing.T) {
	s := newSite(t)
	first := s.server.URL()
	assert.Regexp(t, `^http://wisbox-[a-z2-7]{16}\.localhost:`, first)
	res, _ := s.do(s.browser, "GET", "/api/sessions", "")
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode)
	res, _ = s.do(s.browser, "POST", "/api/enter", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`)
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode)
	assert.Empty(t, res.Cookies())
	assert.Equal(t, first, s.server.URL(), "a wrong key uses nothing up")

	res, body := s.do(s.browser, "POST", "/api/enter", fmt.Sprintf(`{"key":%q}`, keyOf(first)))
	require.Equal(t, http.StatusOK, res.StatusCode, body)
	require.Len(t, res.Cookies(), 1)
	cookie := res.Cookies()[0]
	assert.True(t, cookie.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	assert.NotContains(t, body, cookie.Value)
	label, _, _ := strings.Cut(s.host, ".")
	assert.Equal(t, label, cookie.Name, "the cookie is this server's own")
	require.NoError(t, json.Unmarshal([]byte(body), &struct{ Token *string }{&s.token}))
	assert.Equal(t, s.server.URL(), <-s.entered)

	again, _ := s.do(&http.Client{Transport: s.transport()}, "POST", "/api/enter", fmt.Sprintf(`{"key":%q}`, keyOf(first)))
	assert.Equal(t, http.StatusUnauthorized, again.StatusCode, "the URL is good once")
	assert.NotEqual(t, first, s.server.URL())
	res, _ = s.do(s.browser, "GET", "/api/sessions", "")
	assert.Equal(t, http.StatusOK, res.StatusCode)
}

// TestOtherPagesChangeNothing, by a form, a foreign script, a rebound name, or a stolen cookie without the token.
func TestOtherPagesChangeNothing(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	port := s.host[strings.LastIndexByte(s.host, ':'):]
	for name, c := range map[string]struct {
		status int
		method string
		path   string
		header []string
	}{
		"no token":              {401, "POST", "/api/sessions/box/stop", []string{tokenHeader, ""}},
		"a wrong token":         {401, "POST", "/api/sessions/box/stop", []string{tokenHeader, strings.Repeat("A", 26)}},
		"me, no token":          {401, "GET", "/api/me", []string{tokenHeader, ""}},
		"a list, no token":      {401, "GET", "/api/sessions", []string{tokenHeader, ""}},
		"a file, a wrong one":   {401, "GET", "/api/sessions/box/raw?path=a.txt&ticket=" + strings.Repeat("A", 26), []string{tokenHeader, ""}},
		"a file, empty":         {401, "GET", "/api/sessions/box/raw?path=a.txt&ticket=", []string{tokenHeader, ""}},
		"calls, no token":       {401, "GET", "/api/sessions/box/events?after=0", []string{tokenHeader, ""}},
		"another server's name": {403, "GET", "/", []string{"Host", "wisbox.localhost" + port}},
		"another origin":        {403, "POST", "/api/sessions/box/stop", []string{"Origin", "http://evil.example.com"}},
		"no origin":             {403, "POST", "/api/sessions/box/stop", []string{"Origin", "null"}},
		"another port":          {403, "POST", "/api/sessions/box/stop", []string{"Origin", "http://wisbox.localhost:1"}},
		"a session's page":      {403, "GET", "/api/sessions", []string{"Origin", "http://box-8000.localhost" + port}},
		"a request of a site":   {403, "POST", "/api/sessions/box/stop", []string{"Sec-Fetch-Site", "cross-site"}},
		"an image of a site":    {403, "GET", "/api/sessions/box/diff", []string{"Sec-Fetch-Site", "cross-site"}},
		"a sister's page":       {403, "GET", "/api/sessions/box/diff", []string{"Sec-Fetch-Site", "same-site"}},
		"a rebound name":        {403, "GET", "/api/sessions", []string{"Host", "evil.example.com" + port}},
		"an address":            {403, "GET", "/api/sessions", []string{"Host", "127.0.0.1" + port}},
		"localhost":             {403, "GET", "/api/sessions", []string{"Host", "localhost" + port}},
		"a name below":          {403, "GET", "/api/sessions", []string{"Host", "x." + s.host}},
		"a rebound name, index": {403, "GET", "/", []string{"Host", "evil.example.com" + port}},
		"a terminal elsewhere":  {403, "GET", "/api/sessions/box/terminal", []string{"Origin", "http://evil.example.com", "Connection", "Upgrade", "Upgrade", "websocket"}},
		"a terminal, no token":  {401, "GET", "/api/sessions/box/terminal", []string{tokenHeader, "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", "wisbox"}},
	} {
		res, body := s.do(s.browser, c.method, c.path, "{}", c.header...)
		assert.Equal(t, c.status, res.StatusCode, "%s: %s", name, body)
		assert.Empty(t, res.Header.Get("Access-Control-Allow-Origin"), name)
	}
	s.ask("GET", "/api/sessions/box", "", nil)
	_, me := s.do(s.browser, "GET", "/api/me", "")
	assert.NotContains(t, me, s.token, "the token is in the answer to the key alone")
	tokenAlone := &http.Client{Transport: s.transport()}
	res, _ := s.do(tokenAlone, "GET", "/api/sessions", "", tokenHeader, s.token)
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode, "the cookie is needed too")
	for _, path := range []string{"/api/sessions/box/raw?path=a.txt", "/api/sessions/box/events?after=0", "/api/sessions/box/archive", "/api/sessions/box/patch", "/api/me"} {
		res, _ := s.do(&http.Client{Transport: s.transport()}, "GET", path, "")
		assert.Equal(t, http.StatusUnauthorized, res.StatusCode, path)
	}
	open := s.events("box", 0)
	defer open.Body.Close()
	s.ask("DELETE", "/api/me", "{}", nil)
	res, _ = s.do(s.browser, "GET", "/api/me", "")
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode, "who left is out")
	_, err := io.Copy(io.Discard, open.Body)
	assert.NoError(t, err, "and what was open has ended")
}

// TestATicketIsForOneDownload of the browser that requested it.
func TestATicketIsForOneDownload(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	ticket := func() string {
		var made struct{ Ticket string }
		s.ask("POST", "/api/tickets", "{}", &made)
		return "/api/sessions/box/raw?path=a.txt&ticket=" + made.Ticket
	}
	at := ticket()
	res, _ := s.do(&http.Client{Transport: s.transport()}, "GET", at, "")
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode, "it is nothing without the cookie")
	res, text := s.do(s.browser, "GET", at, "", tokenHeader, "")
	assert.Equal(t, http.StatusOK, res.StatusCode, text)
	assert.Equal(t, "one\n", text)
	res, _ = s.do(s.browser, "GET", at, "", tokenHeader, "")
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode, "it is good once")
	res, _ = s.do(s.browser, "DELETE", strings.Replace(ticket(), "/raw", "", 1), "", tokenHeader, "")
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode, "it changes nothing")
	first := ticket()
	for range 16 {
		ticket()
	}
	res, _ = s.do(s.browser, "GET", first, "", tokenHeader, "")
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode, "so many aren't kept")
}

// events opens the stream of a session's calls.
func (s *site) events(session string, after int) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, fmt.Sprintf("%s/api/sessions/%s/events?after=%d", s.base, session, after), nil)
	require.NoError(s.t, err)
	r.Header.Set(tokenHeader, s.token)
	res, err := s.browser.Do(r)
	require.NoError(s.t, err)
	return res
}

// TestWhatBrowsersAreTold: the headers are on every answer, and scripts come only from files.
func TestWhatBrowsersAreTold(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	for _, path := range []string{"/", "/assets/page.js", "/assets/page.css", "/assets/nothing", "/api/me", "/api/sessions/none", "/api/sessions/box/raw?path=a.txt", "/nothing"} {
		res, _ := s.do(s.browser, "GET", path, "")
		policy := res.Header.Get("Content-Security-Policy")
		assert.Contains(t, policy, "frame-ancestors 'none'", path)
		assert.Contains(t, policy, "default-src 'none'", path)
		assert.NotContains(t, policy, "unsafe", path)
		assert.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "no-referrer", res.Header.Get("Referrer-Policy"), path)
		assert.Equal(t, "same-origin", res.Header.Get("Cross-Origin-Resource-Policy"), path)
		if path != "/" {
			assert.Contains(t, policy, "sandbox", path)
		}
	}
	one, text := s.do(s.browser, "GET", "/", "")
	two, _ := s.do(s.browser, "GET", "/", "")
	assert.NotEqual(t, one.Header.Get("Content-Security-Policy"), two.Header.Get("Content-Security-Policy"), "each answer has a nonce of its own")
	assert.NotContains(t, text, "NONCE")
	assert.NotRegexp(t, `(href|src)="(https?:|/)`, text, "addresses are relative: the page works below a prefix")
	assert.NotContains(t, text, "style=")
}

// TestThePageIsSmall, counting everything that a browser loads, compressed.
func TestThePageIsSmall(t *testing.T) {
	s := newSite(t)
	_, index := s.do(s.browser, "GET", "/", "")
	all := len(index)
	for _, at := range regexp.MustCompile(`(?:href|src)="(assets/[^"]+)"`).FindAllStringSubmatch(index, -1) {
		res, sent := s.do(s.browser, "GET", "/"+at[1], "", "Accept-Encoding", "gzip")
		require.Equal(t, "gzip", res.Header.Get("Content-Encoding"), at[1])
		all += len(sent)
	}
	assert.Greater(t, all, 100_000)
	assert.LessOrEqual(t, all, 300_000)
	t.Logf("%d bytes", all)
}

// TestForeignNames of sessions, snapshots, calls and paths are refused.
func TestForeignNames(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	ephemeral, err := s.m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, ephemeral.Close(context.Background())) }()
	for _, id := range []string{"none", "..%2f..%2fetc", "%2e%2e", "box%00", "box%2fworkspace", "BOX", strings.Repeat("a", 5000)} {
		for _, rest := range []string{"", "/log", "/files", "/verify", "/events?after=0", "/raw?path=a.txt", "/connections"} {
			res, body := s.do(s.browser, "GET", "/api/sessions/"+id+rest, "")
			assert.GreaterOrEqual(t, res.StatusCode, 400, "%s%s: %s", id, rest, body)
			assert.NotContains(t, body, os.TempDir())
		}
	}
	for _, path := range []string{"../session.json", "%2e%2e/%2e%2e/root.json", "a.txt/../../session.json", "//etc/passwd", "a%00b", "."} {
		for _, at := range []string{"/file?path=", "/raw?path="} {
			assert.NotEmpty(t, s.refused("GET", "/api/sessions/box"+at+path, ""), path)
		}
		assert.NotEmpty(t, s.refused("PUT", "/api/sessions/box/file?path="+path, `{"text":"x","was":""}`), path)
	}
	assert.Equal(t, "not_found", s.refused("GET", "/api/sessions/box/steps/01AAAAAAAAAAAAAAAAAAAAAAAA", ""))
	assert.Equal(t, "not_found", s.refused("POST", "/api/sessions/box/undo", `{"call":"none"}`))
	assert.NotEmpty(t, s.refused("POST", "/api/sessions/box/restore", `{"snapshot_id":"../x"}`))
	assert.Equal(t, "invalid", s.refused("POST", "/api/sessions", `{"name":"x","unknown":1}`))
	assert.Equal(t, "invalid", s.refused("POST", "/api/sessions", `nonsense`))
	assert.Equal(t, "too_large", s.refused("PUT", "/api/sessions/box/file?path=big", `{"text":"`+strings.Repeat("x", 17<<20)+`"}`))
	assert.Equal(t, "permission", s.refused("POST", "/api/sessions", `{"mounts":[{"host_path":"/etc"}]}`), "nobody allowed a folder")
	assert.Equal(t, "invalid", s.refused("GET", "/api/sessions/box/log?before=x", ""))
}

// TestFoldersComeFromAllowedRootsAlone: only folders below one can be copied.
func TestFoldersComeFromAllowedRootsAlone(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "f"), []byte("mine"), 0o600))
	s := newSite(t, func(o *page.Options) { o.AllowedRoots = []string{root} })
	s.enter()
	assert.NotEmpty(t, s.refused("POST", "/api/sessions", `{"name":"no","mounts":[{"host_path":"/etc","mount_path":"."}]}`))
	s.ask("POST", "/api/sessions", fmt.Sprintf(`{"name":"box","mounts":[{"host_path":%q,"mount_path":"."}]}`, root), nil)
	var f struct{ Text string }
	s.ask("GET", "/api/sessions/box/file?path=f", "", &f)
	assert.Equal(t, "mine", f.Text)
}

// TestNewSessionsKeepTheRestrictions that the server was started with.
func TestNewSessionsKeepTheRestrictions(t *testing.T) {
	s := newSite(t, func(o *page.Options) {
		o.Session = wisbox.SessionOptions{
			Deny: []string{"evil.example.com"}, Limits: sandbox.Limits{Memory: 64 << 20, PIDs: 50}, Isolation: sandbox.IsolationGVisor, TTL: time.Hour, ReadBeforeWrite: true,
		}
	})
	s.enter()
	s.ask("POST", "/api/sessions", `{"name":"plain"}`, nil)
	s.ask("POST", "/api/sessions", `{"name":"more","deny":["worse.example.com"],"limits":{"memory_bytes":33554432,"cpus":2},"ttl":60}`, nil)
	for name, want := range map[string]wisbox.SessionOptions{
		"plain": {Deny: []string{"evil.example.com"}, Limits: sandbox.Limits{Memory: 64 << 20, PIDs: 50, CPUs: 1}, TTL: time.Hour},
		"more":  {Deny: []string{"evil.example.com", "worse.example.com"}, Limits: sandbox.Limits{Memory: 32 << 20, PIDs: 50, CPUs: 2}, TTL: time.Minute},
	} {
		var got wisbox.SessionOptions
		all, err := s.m.List(t.Context())
		require.NoError(t, err)
		for _, e := range all {
			if e.ID == name {
				require.NoError(t, json.Unmarshal(e.State.Settings, &got))
			}
		}
		assert.Equal(t, want.Deny, got.Deny, name)
		limits := got.Limits.WithDefaults()
		assert.Equal(t, want.Limits, sandbox.Limits{Memory: limits.Memory, PIDs: limits.PIDs, CPUs: limits.CPUs}, name)
		assert.Equal(t, want.TTL, got.TTL, name)
		assert.Equal(t, sandbox.IsolationGVisor, got.Isolation, name)
		assert.True(t, got.ReadBeforeWrite, name)
	}
	var me struct{ Limits sandbox.Limits }
	s.ask("GET", "/api/me", "", &me)
	assert.EqualValues(t, 64<<20, me.Limits.Memory, "the page shows what is left out")
}

// TestTheWayBack: a call, its changes, undo, a snapshot and restore, as the page does it.
func TestTheWayBack(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	var f struct {
		Text   string
		SHA256 string
	}
	s.ask("GET", "/api/sessions/box/file?path=a.txt", "", &f)
	s.ask("POST", "/api/sessions/box/snapshots", `{"label":"first"}`, nil)
	s.ask("PUT", "/api/sessions/box/file?path=a.txt", fmt.Sprintf(`{"text":"two\n","was":%q}`, f.SHA256), nil)
	assert.Equal(t, "conflict", s.refused("PUT", "/api/sessions/box/file?path=a.txt", fmt.Sprintf(`{"text":"three\n","was":%q}`, f.SHA256)))

	var log struct {
		Records []struct {
			Seq                int64
			Tool, Call, Caller string
		}
		First, Last int64
	}
	s.ask("GET", "/api/sessions/box/log", "", &log)
	last := log.Records[len(log.Records)-1]
	for _, r := range log.Records {
		assert.Equal(t, "page", r.Caller)
		if r.Tool == "write_file" {
			last = r
		}
	}
	var d struct {
		Patch string
		Cut   bool
	}
	s.ask("GET", "/api/sessions/box/steps/"+last.Call, "", &d)
	assert.Contains(t, d.Patch, "-one\n+two\n")
	var undoable struct {
		Steps []struct {
			Call, Tool string
			Total      int64 `json:"total_changes"`
		}
	}
	s.ask("GET", "/api/sessions/box/steps", "", &undoable)
	require.NotEmpty(t, undoable.Steps)
	assert.Equal(t, last.Call, undoable.Steps[0].Call, "the page names the call that it undoes")
	assert.Equal(t, "write_file", undoable.Steps[0].Tool)
	assert.EqualValues(t, 1, undoable.Steps[0].Total)
	s.ask("POST", "/api/sessions/box/undo", fmt.Sprintf(`{"call":%q}`, last.Call), nil)
	s.ask("GET", "/api/sessions/box/file?path=a.txt", "", &f)
	assert.Equal(t, "one\n", f.Text)

	s.ask("PUT", "/api/sessions/box/file?path=b.txt", `{"text":"b","was":""}`, nil)
	var all struct {
		Snapshots []struct {
			SnapshotID string `json:"snapshot_id"`
			Label      string
		}
	}
	s.ask("GET", "/api/sessions/box/snapshots", "", &all)
	for _, k := range all.Snapshots {
		if k.Label == "first" {
			res, patch := s.do(s.browser, "GET", "/api/sessions/box/patch?from="+k.SnapshotID, "")
			assert.Equal(t, "attachment; filename=box.patch", res.Header.Get("Content-Disposition"))
			assert.Contains(t, patch, "+++ b/b.txt")
			s.ask("POST", "/api/sessions/box/restore", fmt.Sprintf(`{"snapshot_id":%q}`, k.SnapshotID), nil)
		}
	}
	assert.Equal(t, "not_found", s.refused("GET", "/api/sessions/box/file?path=b.txt", ""))
	var v struct {
		Calls struct {
			Records  int64
			Problems []any
		}
	}
	s.ask("GET", "/api/sessions/box/verify", "", &v)
	assert.Empty(t, v.Calls.Problems)
	assert.Positive(t, v.Calls.Records)

	s.ask("POST", "/api/sessions/box/fork", `{"name":"copy"}`, nil)
	s.ask("POST", "/api/sessions/copy/rename", `{"name":"renamed"}`, nil)
	s.ask("DELETE", "/api/sessions/renamed", "{}", nil)
	var list struct{ Sessions []struct{ ID string } }
	s.ask("GET", "/api/sessions", "", &list)
	assert.Len(t, list.Sessions, 1)
}

// TestHostileNamesAreDownloads: no name reaches a header unchanged, and nothing is displayed inline.
func TestHostileNamesAreDownloads(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	box, err := s.m.Attach(t.Context(), "box")
	require.NoError(t, err)
	defer func() { assert.NoError(t, box.Close(context.Background())) }()
	for _, name := range []string{
		"x\r\nSet-Cookie: a=b", "<script>alert(1).html", "a\";filename=b.exe", "‮gpj.exe", "é.svg", "a\x1b]0;t\x07", " ", "-rf", "a%0d%0ab", "'; drop", strings.Repeat("ä", 120),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(box.WorkspacePath(), name), []byte("<svg onload=alert(1)>"), 0o600))
		res, body := s.do(s.browser, "GET", "/api/sessions/box/raw?path="+url.QueryEscape(name), "")
		require.Equal(t, http.StatusOK, res.StatusCode, "%q %s", name, body)
		kind, params, err := mime.ParseMediaType(res.Header.Get("Content-Disposition"))
		require.NoError(t, err, "%q", name)
		assert.Equal(t, "attachment", kind)
		assert.NotRegexp(t, `[\x00-\x1f"\\/‮]`, params["filename"])
		assert.Equal(t, "application/octet-stream", res.Header.Get("Content-Type"))
		assert.Empty(t, res.Cookies())

		res, body = s.do(s.browser, "GET", "/api/sessions/box/file?path="+url.QueryEscape(name), "")
		assert.Equal(t, "application/json; charset=utf-8", res.Header.Get("Content-Type"))
		assert.NotContains(t, body, "<", "HTML is escaped, though nothing takes this for it")
	}
	require.NoError(t, os.WriteFile(filepath.Join(box.WorkspacePath(), "odd\xff"), nil, 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(box.WorkspacePath(), "out")))
	var l struct {
		Entries []struct {
			Name, Kind, Target string
			Odd                bool
		}
	}
	s.ask("GET", "/api/sessions/box/files", "", &l)
	odd := 0
	for _, e := range l.Entries {
		if e.Odd {
			odd++
		}
		if e.Name == "out" {
			assert.Equal(t, "/etc/passwd", e.Target)
		}
	}
	assert.Equal(t, 1, odd)
	assert.NotEmpty(t, s.refused("GET", "/api/sessions/box/raw?path=out", ""))
	require.NoError(t, syscall.Mkfifo(filepath.Join(box.WorkspacePath(), "fifo"), 0o600))
	assert.NotEmpty(t, s.refused("GET", "/api/sessions/box/file?path=fifo", ""), "nobody waits for a writer")
}

// TestFilesAreShownByWhatTheyAre: text, four kinds of images, and bytes; SVG counts as text.
func TestFilesAreShownByWhatTheyAre(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	box, err := s.m.Attach(t.Context(), "box")
	require.NoError(t, err)
	defer func() { assert.NoError(t, box.Close(context.Background())) }()
	for name, c := range map[string]struct {
		content string
		kind    string
		cut     bool
	}{
		"svg":   {`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`, "text", false},
		"png":   {"\x89PNG\r\n\x1a\n\x00\x00", "image", false},
		"pdf":   {"%PDF-1.4\n\xff\xfe\x00", "bytes", false},
		"nul":   {"a\x00b", "bytes", false},
		"empty": {"", "text", false},
		"line":  {strings.Repeat("x", 1<<20), "text", false},
		"large": {strings.Repeat("é", 2<<20), "text", true},
		"blob":  {strings.Repeat("\x00\x01", 1<<20), "bytes", true},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(box.WorkspacePath(), name), []byte(c.content), 0o600))
		var f struct {
			Kind, Text string
			Size       int
			Cut        bool
		}
		s.ask("GET", "/api/sessions/box/file?path="+name, "", &f)
		assert.Equal(t, c.kind, f.Kind, name)
		assert.Equal(t, c.cut, f.Cut, name)
		assert.Equal(t, len(c.content), f.Size, name)
	}
	for i := range 1200 {
		require.NoError(t, os.WriteFile(filepath.Join(box.WorkspacePath(), fmt.Sprintf("many-%04d", i)), nil, 0o600))
	}
	var l struct {
		Entries []any
		From    int
		Total   int
	}
	s.ask("GET", "/api/sessions/box/files", "", &l)
	assert.Len(t, l.Entries, 1000)
	assert.Equal(t, 1209, l.Total)
	s.ask("GET", "/api/sessions/box/files?from=1000", "", &l)
	assert.Len(t, l.Entries, 209)
}

// TestCallsComeAsTheyAreMade over a stream, which ends with the session.
func TestCallsComeAsTheyAreMade(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	res := s.events("box", 1)
	defer res.Body.Close()
	assert.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	s.ask("PUT", "/api/sessions/box/file?path=b.txt", `{"text":"b","was":""}`, nil)
	lines := bufio.NewScanner(res.Body)
	next := func(begin string) string {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), begin); ok {
				return text
			}
		}
		t.Fatalf("the stream ended before %q: %v", begin, lines.Err())
		return ""
	}
	assert.Equal(t, "2", next("id: "))
	assert.Contains(t, next("data: "), `"tool":"write_file"`)
	s.ask("DELETE", "/api/sessions/box", "{}", nil)
	next("event: end")
}

// TestLogsArePaged from the end to the beginning, each record once.
func TestLogsArePaged(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	const calls = 1203
	box, err := s.m.Attach(t.Context(), "box")
	require.NoError(t, err)
	for range calls - 1 {
		_, err := box.CallOwn(t.Context(), "ls", nil)
		require.NoError(t, err)
	}
	require.NoError(t, box.Close(t.Context()))
	seen, before := 0, ""
	for {
		var p struct {
			Records []struct{ Seq int64 }
			First   int64
			Last    int64
		}
		s.ask("GET", "/api/sessions/box/log"+before, "", &p)
		if len(p.Records) == 0 {
			break
		}
		assert.LessOrEqual(t, len(p.Records), 501)
		assert.Equal(t, p.First, p.Records[0].Seq)
		assert.Equal(t, p.Last, p.Records[len(p.Records)-1].Seq)
		assert.EqualValues(t, calls-seen, p.Last)
		seen += len(p.Records)
		before = fmt.Sprintf("?before=%d", p.First)
	}
	assert.Equal(t, calls, seen)

	first := func(after int) string {
		res := s.events("box", after)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() && (lines.Text() == "" || strings.HasPrefix(lines.Text(), ":")) {
		}
		return lines.Text()
	}
	assert.Equal(t, "id: 704", first(calls-500))
	assert.Equal(t, "event: gap", first(calls-501), "a page that wasn't looked at misses no call: it reads the log again")
}

// TestTheTerminalOutlivesItsPage: the next page gets the shell, its size and its earlier output.
func TestTheTerminalOutlivesItsPage(t *testing.T) {
	s := newSite(t, func(o *page.Options) { o.Manager = held(t, o.Manager, o.Store.Path()) })
	s.enter()
	open := func(query string) *websocket.Conn {
		c, res, err := websocket.Dial(t.Context(), s.base+"/api/sessions/box/terminal"+query, &websocket.DialOptions{
			HTTPClient: s.browser, Subprotocols: []string{"wisbox", s.token}, HTTPHeader: http.Header{"Origin": {s.origin()}},
		})
		require.NoError(t, err, "%v", res)
		assert.Equal(t, "wisbox", c.Subprotocol(), "the token isn't said back")
		return c
	}
	until := func(c *websocket.Conn, text string) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all bytes.Buffer
		for !strings.Contains(all.String(), text) {
			_, raw, err := c.Read(ctx)
			require.NoError(t, err, "%q", all.String())
			all.Write(raw)
		}
	}
	c := open("?cols=91&rows=17")
	_, raw, err := c.Read(t.Context())
	require.NoError(t, err)
	var said struct{ Process string }
	require.NoError(t, json.Unmarshal(raw, &said))
	require.NotEmpty(t, said.Process)
	require.NoError(t, c.Write(t.Context(), websocket.MessageBinary, []byte("stty size; echo mark$((6*7))\n")))
	until(c, "17 91")
	require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`{"resize":{"cols":66,"rows":20}}`)))
	require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`nonsense`)))
	require.NoError(t, c.CloseNow())
	c = open("?process=" + said.Process)
	until(c, "mark42")
	require.NoError(t, c.Write(t.Context(), websocket.MessageBinary, []byte("exit 7\n")))
	until(c, `"exit_code":7`)
	_, _, err = c.Read(t.Context())
	assert.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
	c = open("?process=none")
	until(c, "not_found")
	_ = c.CloseNow()

	c = open("")
	_, raw, err = c.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &said))
	s.ask("POST", "/api/sessions", `{"name":"taken"}`, nil)
	assert.Equal(t, "exists", s.refused("POST", "/api/sessions/box/rename", `{"name":"taken"}`))
	assert.Equal(t, "invalid", s.refused("POST", "/api/sessions/box/rename", `{"name":"No Name"}`))
	require.NoError(t, c.Write(t.Context(), websocket.MessageBinary, []byte("echo still$((6*7))\n")))
	until(c, "still42")
	_ = c.CloseNow()
	s.ask("POST", "/api/sessions/box/rename", `{"name":"renamed"}`, nil)
}

// TestBehindAPrefix: a proxy in front terminates TLS, and keeps or removes the prefix.
func TestBehindAPrefix(t *testing.T) {
	s := newSite(t, func(o *page.Options) { o.URL = "https://dev.example.com/a/b" })
	assert.True(t, strings.HasPrefix(s.server.URL(), "https://dev.example.com/a/b/#key="), s.server.URL())
	plain := &http.Client{Transport: s.transport()}
	for _, prefix := range []string{"", "/a/b"} {
		s.base = "http://dev.example.com" + prefix
		for _, path := range []string{"/", "/assets/page.js"} {
			res, _ := s.do(plain, "GET", path, "")
			assert.Equal(t, http.StatusOK, res.StatusCode, path)
		}
		res, body := s.do(plain, "POST", "/api/enter", fmt.Sprintf(`{"key":%q}`, keyOf(s.server.URL())), "Origin", "https://dev.example.com")
		require.Equal(t, http.StatusOK, res.StatusCode, body)
		cookie := res.Cookies()[0]
		assert.Regexp(t, `^__Host-wisbox-[a-z2-7]{16}$`, cookie.Name, "servers of one host have cookies of their own")
		assert.True(t, cookie.Secure)
		assert.Equal(t, "/", cookie.Path)
		assert.Empty(t, cookie.Domain)
	}
	for _, bad := range []string{"dev.example.com", "ftp://x", "https://", "https://u:p@x/", "https://x/?a", "https://x/#a", ":"} {
		_, err := page.Listen(&page.Options{URL: bad})
		assert.Error(t, err, bad)
	}
	_, err := page.Listen(&page.Options{Address: "0.0.0.0:0"})
	assert.Error(t, err, "other machines need TLS")
}

// TestBothFamilies: the page has both families of the loopback interface, because browsers would find another server
// there under its name.
func TestBothFamilies(t *testing.T) {
	for _, addr := range []string{"", "localhost:0", "LOCALHOST:0", "127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"} {
		server, err := page.Listen(&page.Options{Address: addr})
		require.NoError(t, err, addr)
		_, port, err := net.SplitHostPort(server.Address().String())
		require.NoError(t, err)
		for _, family := range []string{"127.0.0.1", "::1"} {
			l, err := net.Listen("tcp", net.JoinHostPort(family, port))
			assert.Error(t, err, "%q leaves %s to others", addr, family)
			if err == nil {
				assert.NoError(t, l.Close())
			}
		}
		require.NoError(t, server.Close())
	}
	for _, addr := range []string{"127.0.0.2:0", "[::ffff:127.9.9.9]:0"} {
		_, err := page.Listen(&page.Options{Address: addr})
		known := (*tool.Error)(nil)
		require.ErrorAs(t, err, &known, addr)
		assert.Equal(t, "listen", known.Field)
	}
}
