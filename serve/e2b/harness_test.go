package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hangGuard = 30 * time.Second

// Keys of three owners.
const (
	keyA = "e2b_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	keyB = "e2b_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	keyC = "e2b_cccccccccccccccccccccccccccccccc"
)

func keys(text string) (apikeys.Key, bool) {
	switch text {
	case keyA:
		return apikeys.Key{ID: "A", Owner: "a"}, true
	case keyB:
		return apikeys.Key{ID: "B", Owner: "b", Sandboxes: 2, Metrics: true}, true
	case keyC:
		return apikeys.Key{ID: "C", Owner: "c", Creations: 1}, true
	}
	return apikeys.Key{}, false
}

// world is a server with sandboxes that run nothing.
type world struct {
	t      *testing.T
	engine *registrytest.Engine
	reg    *registry.Registry
	server *Server
	web    web
	client *http.Client
	log    *syncBuffer
}

// web is the server behind its guard.
type web struct {
	URL   string
	guard *httpguard.Guard
	Close func()
}

func (w *web) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func serveGuarded(t *testing.T, h http.Handler, edit func(*httpguard.Options)) web {
	t.Helper()
	o := httpguard.Options{OwnKeys: true, Fair: true, AnyAddress: true, Below: []string{"localhost"}, AnyOrigin: ForPort, OnlyHTTP1: true}
	if edit != nil {
		edit(&o)
	}
	guard, err := httpguard.New(&o)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- guard.Serve(ctx, l, guard.Handler(h), nil) }()
	return web{"http://" + l.Addr().String(), guard, sync.OnceFunc(func() { cancel(); assert.NoError(t, <-served) })}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newWorld creates a world, which edit may change. Its envd answers with its own options, and with a stream at /stream.
func newWorld(t *testing.T, engine *registrytest.Engine, edit func(*Options)) *world {
	t.Helper()
	return newGuardedWorld(t, engine, edit, nil)
}

// newGuardedWorld is newWorld with another guard.
func newGuardedWorld(t *testing.T, engine *registrytest.Engine, edit func(*Options), guard func(*httpguard.Options)) *world {
	t.Helper()
	w := &world{t: t, engine: engine, client: &http.Client{Transport: &http.Transport{}}, log: &syncBuffer{}}
	if w.engine == nil {
		w.engine = &registrytest.Engine{}
	}
	log := slog.New(slog.NewJSONHandler(w.log, nil))
	var err error
	w.reg, err = registry.Open(t.Context(), &registry.Options{
		Engine: w.engine, Dir: t.TempDir(), Log: log, SampleEvery: 50 * time.Millisecond, // the hour of samples lasts 36 s
		Front: Fronts(&FrontOptions{Services: map[uint16]func(registry.Box, Service) http.Handler{EnvdPort: envd}, Log: log, Keys: func(text string) bool { _, ok := keys(text); return ok }}),
	})
	require.NoError(t, err)
	o := &Options{Registry: w.reg, Keys: keys, Pauses: true, Size: Size{CPUs: 2, MemoryMB: 512, DiskMB: 1024}, Log: log}
	if edit != nil {
		edit(o)
	}
	w.server = New(o)
	w.web = serveGuarded(t, w.server, guard)
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		assert.NoError(t, w.reg.Close())
		w.web.Close()
		w.server.Drain(hangGuard)
		w.requireQuietLog()
	})
	return w
}

func envd(_ registry.Box, o Service) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/files", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "a file") })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, _ = io.WriteString(w, "an end that nobody may see")
	})
	mux.HandleFunc("/pass", func(w http.ResponseWriter, r *http.Request) {
		o.Pass(w, r, func(http.ResponseWriter, *http.Request) {})
	})
	mux.HandleFunc("/made", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"token": o.Token, "env": o.Env})
	})
	return mux
}

// requireQuietLog checks that the log has no key, token or ID.
func (w *world) requireQuietLog() {
	w.t.Helper()
	said := w.log.String()
	assert.NotContains(w.t, said, keyA)
	for _, s := range w.reg.All() {
		assert.NotContains(w.t, said, s.ID())
		assert.NotContains(w.t, said, s.EnvdToken())
		assert.NotContains(w.t, said, s.TrafficToken())
	}
}

// ask sends a request to the control API, and decodes the answer's body into v, if any.
func (w *world) ask(key, method, path, body string, v any) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.web.URL+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if key != "" {
		r.Header.Set("X-API-KEY", key)
	}
	return w.do(r, v)
}

func (w *world) do(r *http.Request, v any) *http.Response {
	w.t.Helper()
	res, err := w.client.Do(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	if v != nil {
		require.NoError(w.t, json.Unmarshal(raw, v), "%d %s", res.StatusCode, raw)
	}
	return res
}

type said struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// refused sends a request that must fail, with the code in the body too.
func (w *world) refused(status int, key, method, path, body string) said {
	w.t.Helper()
	var f said
	res := w.ask(key, method, path, body, &f)
	assert.Equal(w.t, status, res.StatusCode, "%s %s: %+v", method, path, f)
	assert.Equal(w.t, status, f.Code)
	assert.NotEmpty(w.t, f.Message)
	return f
}

func (w *world) create(key, body string) sandboxAnswer {
	w.t.Helper()
	var a sandboxAnswer
	res := w.ask(key, "POST", "/v2/sandboxes", body, &a)
	require.Equal(w.t, http.StatusCreated, res.StatusCode)
	return a
}

// toPort returns a request for a port of a sandbox.
func (w *world) toPort(id, port, path string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.web.URL+path, nil)
	require.NoError(w.t, err)
	r.Host = port + "-" + id + ".localhost"
	return r
}
