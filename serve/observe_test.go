package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/audit"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/serve/e2b"
)

func newWatch(t *testing.T) (*observer, string) {
	t.Helper()
	dir := t.TempDir()
	o, err := newObserver(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, o.Close()) })
	o.registry, err = registry.Open(t.Context(), &registry.Options{Engine: &registrytest.Engine{}, Dir: filepath.Join(dir, "r")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, o.registry.Close()) })
	return o, dir
}

func TestTheUseOfAKeyIsNotedAndNothingElse(t *testing.T) {
	o, dir := newWatch(t)
	o.observe(e2b.Request{ID: "r1", Time: time.Unix(1, 0).UTC(), Method: "POST", Route: "POST /sandboxes/{id}/timeout", Status: 204, Key: "key_1", Sandbox: "abcd"})
	o.observe(e2b.Request{ID: "r2", Route: "port", Status: 200})
	o.observe(e2b.Request{ID: "r3", Route: "POST /sandboxes", Status: 401})
	raw, err := os.ReadFile(filepath.Join(dir, auditFile))
	require.NoError(t, err)
	assert.Equal(t, 1, bytes.Count(raw, []byte{'\n'}))
	assert.Contains(t, string(raw), `"time":"1970-01-01T00:00:01Z","request":"r1","key":"key_1","route":"POST /sandboxes/{id}/timeout","sandbox":"abcd","status":204`)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	report, err := audit.Verify(root, auditFile)
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
}

// TestAKeyCantPushItsChangesOut by reading, or by what is refused: they are in another log, where equal ones are one line.
func TestAKeyCantPushItsChangesOut(t *testing.T) {
	dir := t.TempDir()
	o, err := newObserver(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var now time.Time
	o.now = func() time.Time { return now }
	made := e2b.Request{ID: "made", Time: time.Unix(0, 0).UTC(), Method: "POST", Route: "POST /sandboxes", Status: 201, Key: "key_1"}
	o.observe(made)
	look, refused, ping := made, made, made
	ping.Route, ping.Status = "/mcp", 200
	look.Method, look.Route, look.Status = "GET", "GET /sandboxes", 200
	refused.ID, refused.Status = "no", 429
	for i := range 150_000 {
		look.ID, look.Time = strconv.Itoa(i), time.Unix(0, 0).UTC().Add(time.Duration(i)*time.Millisecond)
		now = look.Time
		o.observe(look)
		old := ping
		old.ID, old.Status, old.Time = look.ID, 204, now.Add(-2*foldTime) // that began long ago
		if i%1000 == 0 {
			o.observe(old)
		}
		ping.ID, ping.Time = look.ID, look.Time
		o.observe(ping)
	}
	refused.Time = look.Time
	o.observe(refused)
	require.NoError(t, o.Close())
	changes, err := os.ReadFile(filepath.Join(dir, auditFile))
	require.NoError(t, err)
	assert.Equal(t, 13, bytes.Count(changes, []byte{'\n'}), "of the calls that change nothing, two in a minute")
	assert.Contains(t, string(changes), `"request":"made"`)
	reads, err := os.ReadFile(filepath.Join(dir, readsFile))
	require.NoError(t, err)
	var seen []string
	for line := range strings.Lines(string(reads)) {
		var u use
		require.NoError(t, json.Unmarshal([]byte(line), &u))
		seen = append(seen, fmt.Sprintf("%s %d %d", u.Request, u.Status, u.Times))
	}
	assert.Equal(t, []string{"0 200 0", "59999 200 59999", "60000 200 0", "119999 200 59999", "120000 200 0", "no 429 0", "149999 200 29999"}, seen)
}

func TestTheServersNumbers(t *testing.T) {
	o, _ := newWatch(t)
	_, err := o.registry.Create(t.Context(), registry.Record{}, time.Hour, registry.Quota{})
	require.NoError(t, err)
	o.observe(e2b.Request{Route: "envd", Status: 200, Took: time.Second})
	write := o.writer(nil)
	for range 2 {
		var text strings.Builder
		require.NoError(t, write(&text))
		for _, line := range []string{
			`wisbox_serve_requests_total{route="envd",status="200"} 1`, `wisbox_serve_request_duration_seconds_count{route="envd"} 1`,
			`wisbox_serve_sandboxes{state="running"} 1`, `wisbox_serve_sandboxes{state="paused"} 0`, `wisbox_serve_sandboxes{state="ready"} 0`, "wisbox_serve_memory_bytes 0",
		} {
			assert.Contains(t, text.String(), line)
		}
	}
}
