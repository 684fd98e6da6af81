package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// scrape serves the metrics and reads them like Prometheus.
func scrape(t *testing.T, m metrics.Gatherer, host string) (int, string) {
	t.Helper()
	l, err := metrics.Listen("127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- metrics.Serve(ctx, l, m) }()
	defer func() { cancel(); require.NoError(t, <-served) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/metrics", nil)
	require.NoError(t, err)
	if host != "" {
		req.Host = host
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

func TestWhatAManagerDoesIsCounted(t *testing.T) {
	counted := metrics.New()
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{
		CacheDir: filepath.Join(t.TempDir(), "state"), Backend: sandboxtest.NewHost(), Meter: counted,
	})
	require.NoError(t, err)
	defer m.Close()
	counted.Watch(m.Stats)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{OnEvent: func(wisbox.Event) {}})
	require.NoError(t, err)
	call := func(name, args string) { _, _ = s.Call(t.Context(), name, json.RawMessage(args)) }
	call("write_file", `{"file_path":"f","content":"x"}`)
	call("read_file", `{"file_path":"nosuch"}`)
	call("shell_execute", `{"commands":["false"]}`)
	call("shell_execute", `{"commands":["sleep","9"],"timeout":1}`)
	call("made-up", `{}`)
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"echo", "12345"}, Stdout: io.Discard})
	require.NoError(t, err)

	code, text := scrape(t, counted, "")
	require.Equal(t, http.StatusOK, code)
	for _, line := range []string{
		`wisbox_calls_total{outcome="ok",tool="write_file"} 1`,
		`wisbox_calls_total{outcome="not_found",tool="read_file"} 1`,
		`wisbox_calls_total{outcome="ok",tool="shell_execute"} 1`,
		`wisbox_calls_total{outcome="failed",tool="shell_execute"} 1`,
		`wisbox_calls_total{outcome="not_found",tool="unknown"} 1`,
		`wisbox_call_duration_seconds_count{tool="shell_execute"} 2`,
		`wisbox_programs_total{verdict="exited"} 2`,
		`wisbox_programs_total{verdict="timed_out"} 1`,
		`wisbox_bytes_total{direction="in",tool="write_file"} 31`,
		`wisbox_bytes_total{direction="out",tool="run"} 6`,
		`wisbox_sessions 1`,
		`wisbox_sessions_opened_total 1`,
		`wisbox_pool_ready 0`,
		`wisbox_pool_missed_total 0`,
	} {
		assert.Contains(t, text, line+"\n")
	}
	assert.NotContains(t, text, "made-up")
	require.NoError(t, s.Close(t.Context()))
	_, text = scrape(t, counted, "")
	assert.Contains(t, text, "wisbox_sessions 0\n")
}

func TestMetricsAreForThisMachineOnly(t *testing.T) {
	_, err := metrics.Listen("0.0.0.0:0")
	assert.ErrorContains(t, err, "0.0.0.0:0 is not an address of the loopback interface")
	l, err := metrics.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	if other, err := net.Listen("tcp6", "[::1]:0"); err == nil { // a machine without IPv6 has only one family
		require.NoError(t, other.Close())
		_, err = net.Listen("tcp6", fmt.Sprintf("[::1]:%d", l.Addr().(*net.TCPAddr).Port))
		require.ErrorIs(t, err, syscall.EADDRINUSE, "nobody else answers clients that try ::1 first")
	}
	for host, want := range map[string]int{"localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example:80": 403, "127.0.0.1.evil.example": 403} {
		code, text := scrape(t, metrics.New(), host)
		assert.Equal(t, want, code, host)
		assert.Equal(t, want == 403, strings.Contains(text, "names another server"), host)
	}
}
