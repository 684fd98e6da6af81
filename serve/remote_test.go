package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

// landing is a server, and what its clients need.
type landing struct {
	t    *testing.T
	dir  string
	url  string
	keys *Keys
	s    *Server
	stop func()
}

func land(t *testing.T, edit func(*Options)) *landing {
	t.Helper()
	l := &landing{t: t, dir: filepath.Join(t.TempDir(), "serve")}
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: filepath.Join(t.TempDir(), "state"), Backend: sandboxtest.NewHost(), Holder: []string{"/bin/false"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	l.keys, err = KeysOf(l.dir)
	require.NoError(t, err)
	opts := &Options{Manager: m, Dir: l.dir, Remote: true, Session: wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 64 << 20, Disk: 16 << 20}}}
	if edit != nil {
		edit(opts)
	}
	l.s, err = New(t.Context(), opts)
	require.NoError(t, err)
	at, err := l.s.Listen("127.0.0.1:0")
	require.NoError(t, err)
	l.url = "http://" + at.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.s.Serve(ctx, at) }()
	l.stop = func() {
		if cancel != nil {
			cancel()
			assert.NoError(t, <-ended)
			assert.NoError(t, l.s.Close())
			cancel = nil
		}
	}
	t.Cleanup(l.stop)
	return l
}

func (l *landing) key(o KeyOptions) (text string, k Key) {
	l.t.Helper()
	text, k, err := l.keys.Create(l.t.Context(), o)
	require.NoError(l.t, err)
	return text, k
}

func (l *landing) client(key string) *wisbox.Manager {
	l.t.Helper()
	m, err := wisbox.NewManager(l.t.Context(), &wisbox.Options{Far: l.url, FarKey: key, CacheDir: filepath.Join(l.t.TempDir(), "far")})
	require.NoError(l.t, err)
	l.t.Cleanup(func() { require.NoError(l.t, m.Close()) })
	return m
}

func (l *landing) get(key, path, sandbox string) (int, string) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, l.url+path, nil)
	require.NoError(l.t, err)
	r.Header.Set("X-Api-Key", key)
	if sandbox != "" {
		r.Header.Set("E2b-Sandbox-Id", sandbox)
		r.Header.Set("E2b-Sandbox-Port", "49983")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	require.NoError(l.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(l.t, err)
	return res.StatusCode, string(raw)
}

func lasting(name string) *wisbox.SessionOptions {
	return &wisbox.SessionOptions{Name: name, Kept: true}
}

func names(t *testing.T, m *wisbox.Manager) (all []string) {
	t.Helper()
	list, err := m.List(t.Context())
	require.NoError(t, err)
	for _, e := range list {
		all = append(all, e.ID)
	}
	return all
}

// TestEachKeyHasItsOwnNames: those of others neither collide with them nor are seen, and clients
// of E2B see none. A key that replaces another has its sessions.
func TestEachKeyHasItsOwnNames(t *testing.T) {
	l := land(t, nil)
	textA, keyA := l.key(KeyOptions{})
	textB, _ := l.key(KeyOptions{})
	a, b := l.client(textA), l.client(textB)
	for _, m := range []*wisbox.Manager{a, b} {
		s, err := m.Open(t.Context(), lasting("box"))
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
		_, err = m.Open(t.Context(), lasting("box"))
		assert.Equal(t, tool.Exists, tool.KindOf(err))
	}
	_, err := b.Open(t.Context(), lasting("second"))
	require.NoError(t, err)
	assert.Equal(t, tool.Exists, tool.KindOf(b.Rename(t.Context(), "second", "box")))
	require.NoError(t, b.Rename(t.Context(), "second", "second"), "it has this name")
	require.NoError(t, b.Rename(t.Context(), "second", "third"))
	assert.Equal(t, []string{"box"}, names(t, a))
	assert.Equal(t, []string{"box", "third"}, names(t, b))
	require.NoError(t, a.Remove(t.Context(), "box"))
	assert.Equal(t, tool.NotFound, tool.KindOf(a.Remove(t.Context(), "third")))
	assert.Empty(t, names(t, a))
	_, err = a.Open(t.Context(), lasting("box"))
	require.NoError(t, err, "its name is free at once")
	assert.Equal(t, []string{"box", "third"}, names(t, b))

	textC, _ := l.key(KeyOptions{Replaces: keyA.ID})
	assert.Equal(t, []string{"box"}, names(t, l.client(textC)))

	id := l.s.registry.Named(keyA.Owner)[0].ID()
	for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
		code, body := l.get(textA, path, "")
		assert.Equal(t, http.StatusOK, code)
		assert.JSONEq(t, "[]", body)
	}
	code, _ := l.get(textA, "/sandboxes/"+id, "")
	assert.Equal(t, http.StatusNotFound, code)
	code, _ = l.get(textA, "/mcp/"+id, "")
	assert.Equal(t, http.StatusNotFound, code)
	code, _ = l.get(textA, "/health", id)
	assert.Equal(t, http.StatusBadGateway, code, "its ports are not the server's")
}

// TestSessionsOutliveTheServer with their names.
func TestSessionsOutliveTheServer(t *testing.T) {
	var opts *Options
	l := land(t, func(o *Options) { opts = o })
	text, _ := l.key(KeyOptions{})
	_, err := l.client(text).Open(t.Context(), lasting("box"))
	require.NoError(t, err)
	l.stop()
	again := land(t, func(o *Options) { o.Manager, o.Dir = opts.Manager, opts.Dir })
	assert.Equal(t, []string{"box"}, names(t, again.client(text)))
}

// TestAKeysBoundsHoldOverAllItsSessions: those over a remote and those of clients of E2B.
func TestAKeysBoundsHoldOverAllItsSessions(t *testing.T) {
	beside := int64(besideDisk) + 16<<20 // its snapshots
	l := land(t, nil)
	for what, o := range map[string]KeyOptions{
		"sandboxes": {Sandboxes: 3}, "processors": {CPUs: 3}, "memory": {Memory: 3 * 64 << 20}, "disk": {Disk: 3 * (beside + 16<<20)},
	} {
		text, key := l.key(o)
		m := l.client(text)
		_, err := m.Open(t.Context(), lasting("one"))
		require.NoError(t, err, what)
		box, err := l.s.registry.CreateNamed(t.Context(), registry.Record{Owner: key.Owner, CPUs: 1, Memory: 64 << 20, Disk: 16 << 20, Beside: beside}, time.Hour, registry.Quota{}, // as of E2B
			func(context.Context, registry.Record) (registry.Box, error) { return away{}, nil })
		require.NoError(t, err, what)
		_, err = m.Open(t.Context(), lasting("two"))
		require.NoError(t, err, what)
		_, err = m.Open(t.Context(), lasting("three"))
		assert.Equal(t, tool.Limit, tool.KindOf(err), what)
		assert.ErrorContains(t, err, "(wisbox rm)", what)
		require.ErrorContains(t, err, what)
		s, err := m.Attach(t.Context(), "one")
		require.NoError(t, err)
		_, err = s.Fork(t.Context(), 2, &wisbox.CloneOptions{Name: "fork", Kept: true})
		assert.Equal(t, tool.Limit, tool.KindOf(err), what)
		assert.Equal(t, []string{"one", "two"}, names(t, m), "none is left of those that there was room for")
		l.s.registry.Kill(box)
		_, err = m.Open(t.Context(), lasting("three"))
		require.NoError(t, err, what)
		if o.Memory > 0 {
			require.NoError(t, m.Remove(t.Context(), "three"))
			for _, small := range []string{"a", "b"} {
				_, err = m.Open(t.Context(), &wisbox.SessionOptions{Name: small, Kept: true, Limits: sandbox.Limits{Memory: 32 << 20}})
				require.NoError(t, err, "less is counted as less")
			}
		}
	}
	text, _ := l.key(KeyOptions{Creations: 2})
	m := l.client(text)
	for _, name := range []string{"one", "two"} {
		_, err := m.Open(t.Context(), lasting(name))
		require.NoError(t, err)
	}
	_, err := m.Open(t.Context(), lasting("three"))
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	require.ErrorContains(t, err, "in a minute")
}

// TestARevokedKeyEndsItsConnections, and what runs over them; those of others stay.
func TestARevokedKeyEndsItsConnections(t *testing.T) {
	l := land(t, nil)
	textA, keyA := l.key(KeyOptions{})
	textB, _ := l.key(KeyOptions{})
	watched := func(m *wisbox.Manager) <-chan struct{} {
		s, err := m.Open(t.Context(), lasting("box"))
		require.NoError(t, err)
		changes, err := s.Watch(t.Context(), "/")
		require.NoError(t, err)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range changes {
			}
		}()
		return ended
	}
	a, b := l.client(textA), l.client(textB)
	endedA, endedB := watched(a), watched(b)
	require.NoError(t, l.keys.Revoke(t.Context(), keyA.ID))
	_, err := a.List(t.Context())
	assert.Equal(t, tool.Permission, tool.KindOf(err), "at once: %v", err)
	<-endedA
	_, err = a.List(t.Context())
	assert.Equal(t, tool.Permission, tool.KindOf(err))
	require.ErrorContains(t, err, "revoked")
	select {
	case <-endedB:
		t.Error("another key's ended")
	default:
	}
	assert.Equal(t, []string{"box"}, names(t, b))
	l.stop()
	<-endedB
}

// TestADoorThatIsShut says how it is opened.
func TestADoorThatIsShut(t *testing.T) {
	l := land(t, func(o *Options) { o.Remote = false })
	text, _ := l.key(KeyOptions{})
	_, err := l.client(text).List(t.Context())
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	require.ErrorContains(t, err, "--allow-remote")
	_, err = l.client("e2b_0000000000000000000000000000000000000000").List(t.Context())
	assert.Equal(t, tool.Permission, tool.KindOf(err))
}

// TestWhatAKeyHasAtOnceIsBounded: connections, calls, and large requests.
func TestWhatAKeyHasAtOnceIsBounded(t *testing.T) {
	l := land(t, nil)
	text, key := l.key(KeyOptions{})
	for range remoteConns {
		_, err := l.client(text).List(t.Context())
		require.NoError(t, err)
	}
	more := l.client(text)
	_, err := more.List(t.Context())
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	require.ErrorContains(t, err, "32 connections")
	other, _ := l.key(KeyOptions{})
	_, err = l.client(other).List(t.Context())
	require.NoError(t, err, "others have theirs")

	o, err := l.s.remote.enter(key.Owner)
	require.NoError(t, err)
	l.s.remote.conns.Done()
	te := &tenant{d: l.s.remote, of: o, owner: key.Owner, busy: map[string]int{}, again: func() (apikeys.Key, bool) { return key, true }}
	var ends []func()
	for range remoteCalls {
		end, err := te.Begin(100)
		require.NoError(t, err)
		ends = append(ends, end)
	}
	_, err = te.Begin(100)
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	for _, end := range ends {
		end()
	}
	_, err = te.Begin(maxRequest + 1)
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
	end, err := te.Begin(maxRequest)
	require.NoError(t, err)
	end()
	assert.Empty(t, o.calls)
	assert.Empty(t, o.large)
}

// TestAKeyThatFloodsWaits: its operations count with its requests.
func TestAKeyThatFloodsWaits(t *testing.T) {
	l := land(t, nil)
	_, key := l.key(KeyOptions{})
	_, other := l.key(KeyOptions{})
	of := func(key Key) (*remoteOwner, *tenant) {
		o, err := l.s.remote.enter(key.Owner)
		require.NoError(t, err)
		l.s.remote.conns.Done()
		return o, &tenant{d: l.s.remote, of: o, owner: key.Owner, busy: map[string]int{}, again: func() (apikeys.Key, bool) { return key, true }}
	}
	_, te := of(key)
	left, leave := context.WithCancel(t.Context())
	leave()
	var err error
	for err == nil || errors.Is(err, context.Canceled) { // until a turn would come too late
		var done func(error)
		if done, err = te.Admit(left, wisbox.Admission{Op: "unknown"}); err == nil {
			done(nil)
		}
	}
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	assert.ErrorContains(t, err, "1000 requests a second")
	_, neighbour := of(other)
	done, err := neighbour.Admit(t.Context(), wisbox.Admission{Op: "unknown"})
	require.NoError(t, err)
	done(nil)
}

// TestASessionStaysWhileItIsUsed, and ends after the server's time.
func TestASessionStaysWhileItIsUsed(t *testing.T) {
	l := land(t, func(o *Options) { o.MaxTimeout = 10 * time.Minute })
	text, key := l.key(KeyOptions{})
	m := l.client(text)
	s, err := m.Open(t.Context(), lasting("box"))
	require.NoError(t, err)
	one, ok := l.s.registry.FindNamed(key.Owner, "box")
	require.True(t, ok)
	assert.InDelta(t, 10*time.Minute, time.Until(one.Record().End), float64(time.Minute))
	require.NoError(t, one.SetEnd(time.Minute, false))
	_, err = s.Watch(t.Context(), "/")
	require.NoError(t, err)
	assert.Greater(t, time.Until(one.Record().End), 8*time.Minute, "a use")
	require.NoError(t, one.SetEnd(time.Minute, false))
	require.Eventually(t, func() bool { return time.Until(one.Record().End) > 8*time.Minute }, 20*time.Second, time.Millisecond, "it is in use")
	require.NoError(t, one.SetEnd(0, false))
	require.Eventually(t, func() bool { return len(names(t, m)) == 0 }, 20*time.Second, time.Millisecond)
}

// TestAFullDiskClosesNoSession: its client must be able to make room.
func TestAFullDiskClosesNoSession(t *testing.T) {
	l := land(t, func(o *Options) { o.MaxTimeout = 10 * time.Minute })
	text, key := l.key(KeyOptions{})
	m := l.client(text)
	_, err := m.Open(t.Context(), lasting("box"))
	require.NoError(t, err)
	one, ok := l.s.registry.FindNamed(key.Owner, "box")
	require.True(t, ok)
	records := filepath.Join(l.dir, "sandboxes")
	for _, use := range []func() error{
		func() error { _, err := m.Attach(t.Context(), "box"); return err },
		func() error { return m.Remove(t.Context(), "box") },
	} {
		require.NoError(t, one.SetEnd(time.Minute, false))
		require.NoError(t, os.Rename(records, records+"-away")) // nothing can be written
		assert.NoError(t, use())
		require.NoError(t, os.Rename(records+"-away", records))
	}
	assert.Empty(t, names(t, m))
}

// TestTheUseOfAKeyIsInTheAudit: the connection and each operation, without names and IDs.
func TestTheUseOfAKeyIsInTheAudit(t *testing.T) {
	l := land(t, nil)
	text, key := l.key(KeyOptions{})
	m := l.client(text)
	_, err := m.Open(t.Context(), lasting("verysecret"))
	require.NoError(t, err)
	_, err = m.Attach(t.Context(), "nosuch")
	require.Error(t, err)
	id := l.s.registry.Named(key.Owner)[0]
	_, err = m.Attach(t.Context(), "verysecret")
	require.NoError(t, err)
	require.NoError(t, m.Close())
	l.stop()
	uses := func(file string) (seen []use) {
		raw, err := os.ReadFile(filepath.Join(l.dir, file))
		require.NoError(t, err)
		assert.NotContains(t, string(raw), "verysecret")
		assert.NotContains(t, string(raw), id.ID())
		for line := range strings.Lines(string(raw)) {
			var u use
			require.NoError(t, json.Unmarshal([]byte(line), &u))
			assert.Equal(t, key.ID, u.Key)
			u.Time, u.Request, u.Key = time.Time{}, "", ""
			seen = append(seen, u)
		}
		return seen
	}
	assert.Equal(t, []use{{Route: "remote open", Status: 200}, {Route: "remote attach", Status: 200, Sandbox: id.Alias()}}, uses(auditFile))
	assert.Equal(t, []use{{Route: "remote attach", Status: 404}, {Route: "GET /remote", Status: 101}}, uses(readsFile))
}
