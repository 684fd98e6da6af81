package e2b

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
)

// door is a way in for requests, with all that opens it.
type door struct {
	name, method, path, host, header string
}

// doors returns every route of a server with a sandbox and a build of keyA's, except for the open /health.
func (w *world) doors(sandbox sandboxAnswer, upload string) (all []door) {
	fill := strings.NewReplacer("{id}", sandbox.SandboxID, "{alias}", "base", "{hash}", strings.Repeat("0", 64), "{build}", "b", "{what}", "tags", "{$}", "")
	for _, pattern := range slices.Sorted(maps.Keys(w.server.actions())) {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			method, path = http.MethodPost, pattern
		}
		all = append(all, door{pattern, method, fill.Replace(path), "localhost", "X-API-KEY: " + keyA})
	}
	for pattern := range w.server.keyless() {
		switch pattern {
		case "GET /health":
		case "PUT /templates/{id}/files/{hash}":
			all = append(all, door{pattern, http.MethodPut, upload, "localhost", "X: x"})
		default:
			w.t.Errorf("%s has no test here", pattern)
		}
	}
	return append(all,
		door{"a service", http.MethodPost, "/pass", "49983-" + sandbox.SandboxID + ".localhost", "X-Access-Token: " + sandbox.EnvdToken},
		door{"a program", http.MethodPost, "/", "3000-" + sandbox.SandboxID + ".localhost", "X: x"},
	)
}

// worldOfDoors has a sandbox and a build, with all services that a server can have.
func worldOfDoors(t *testing.T, guard func(*httpguard.Options)) (*world, []door) {
	templates := &shelf{}
	engine := program(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	w := newGuardedWorld(t, engine, func(o *Options) {
		o.Templates, o.Builder, o.BuildDir = templates, &mason{shelf: templates}, t.TempDir()
		o.Metrics = func(io.Writer) error { return nil }
		o.MCP = func(_ http.ResponseWriter, r *http.Request, _ apikeys.Key, _ *registry.Sandbox) error {
			_, _ = io.Copy(io.Discard, r.Body)
			return nil
		}
		o.Remote = func(http.ResponseWriter, *http.Request, apikeys.Key, func() (apikeys.Key, bool)) error { return nil }
	}, guard)
	t.Cleanup(func() { w.server.Stop(hangGuard) })
	a := w.create(keyA, `{}`)
	var made buildAnswer
	require.Equal(t, 202, w.ask(keyA, "POST", "/v3/templates", `{"name":"n"}`, &made).StatusCode)
	var link struct{ URL string }
	require.Equal(t, 201, w.ask(keyA, "GET", "/templates/"+made.TemplateID+"/files/"+strings.Repeat("0", 64), "", &link).StatusCode)
	return w, w.doors(a, strings.TrimPrefix(link.URL, w.web.URL))
}

// TestEveryRouteCountsForItsClient: one that has sent too many requests is refused at each, and others are not.
func TestEveryRouteCountsForItsClient(t *testing.T) {
	w, doors := worldOfDoors(t, func(o *httpguard.Options) { o.Rate, o.Burst = 1e-6, 3 }) // those that made the world
	for visits := 0; ; visits++ {                                                         // visitors have a rate of their own
		d := doors[len(doors)-1]
		status, _ := w.try(d, "0", "")
		if status == 429 {
			assert.Equal(t, 3, visits)
			break
		}
	}
	for _, d := range doors {
		status, header := w.try(d, "0", "")
		assert.Equal(t, 429, status, d.name)
		assert.Equal(t, "5", header.Get("Retry-After"), d.name)
	}
	assert.Equal(t, 200, w.ask(keyB, "GET", "/v2/sandboxes", "", nil).StatusCode)
	assert.Equal(t, 204, w.ask("", "GET", "/health", "", nil).StatusCode)
}

// TestNoRouteWaitsForABody that never comes.
func TestNoRouteWaitsForABody(t *testing.T) {
	w, doors := worldOfDoors(t, func(o *httpguard.Options) { o.Stalled = 200 * time.Millisecond })
	doors = append(doors, door{"without a key", http.MethodPost, "/v2/sandboxes", "localhost", "X: x"}, door{"health", http.MethodGet, "/health", "localhost", "X: x"})
	for _, d := range doors {
		if strings.HasPrefix(d.name, "DELETE /sandboxes") || strings.HasPrefix(d.name, "DELETE /v2/sandboxes") || strings.HasSuffix(d.name, "/pause") {
			continue // the sandbox would be gone
		}
		w.try(d, "10", "{")
	}
}

// try sends a request with the beginning of its body, and waits until the server has answered and no longer waits.
func (w *world) try(d door, length, body string) (status int, header http.Header) {
	w.t.Helper()
	conn := w.web.dial(w.t)
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(hangGuard)))
	_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Length: %s\r\n\r\n%s", d.method, d.path, d.host, d.header, length, body)
	require.NoError(w.t, err)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		assert.NotErrorIs(w.t, err, os.ErrDeadlineExceeded, d.name)
		return 0, nil
	}
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(w.t, err, d.name)
	if body != "" {
		_, err = in.ReadByte()
		assert.Error(w.t, err, d.name)
		assert.NotErrorIs(w.t, err, os.ErrDeadlineExceeded, d.name)
	}
	return res.StatusCode, res.Header
}
