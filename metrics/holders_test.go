package metrics_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// holding plays a process that holds a kept session, and makes a call in it.
func holding(t *testing.T, opts wisbox.Options, name string) {
	t.Helper()
	m, err := wisbox.NewManager(t.Context(), &opts)
	require.NoError(t, err)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: name, Kept: true})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- m.Hold(ctx, name, time.Minute, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
		assert.NoError(t, m.Close())
	})
	<-ready
}

func TestTheMetricsOfAllHoldersAreGathered(t *testing.T) {
	opts := wisbox.Options{CacheDir: filepath.Join(t.TempDir(), "state"), Backend: sandboxtest.NewHost()}
	for _, name := range []string{"one", "two"} {
		counting := opts
		counting.Meter = metrics.New()
		holding(t, counting, name)
	}
	holding(t, opts, "uncounted")
	client := opts
	client.Holder = []string{"/bin/false"}
	m, err := wisbox.NewManager(t.Context(), &client)
	require.NoError(t, err)
	defer m.Close()
	for name, calls := range map[string]int{"one": 1, "two": 2} {
		s, err := m.Attach(t.Context(), name)
		require.NoError(t, err)
		for range calls {
			_, err := s.Call(t.Context(), "shell_execute", []byte(`{"commands":["true"]}`))
			require.NoError(t, err)
		}
		require.NoError(t, s.Close(t.Context()))
	}
	holders := metrics.NewHolders(m)
	code, served := scrape(t, holders, "")
	require.Equal(t, 200, code)
	var printed strings.Builder
	require.NoError(t, metrics.Write(&printed, holders))
	for _, text := range []string{served, printed.String()} {
		for _, line := range []string{
			`wisbox_calls_total{outcome="ok",session="one",tool="shell_execute"} 1`,
			`wisbox_calls_total{outcome="ok",session="two",tool="shell_execute"} 2`,
			`wisbox_call_duration_seconds_count{session="two",tool="shell_execute"} 2`,
			`wisbox_call_duration_seconds_bucket{session="two",tool="shell_execute",le="+Inf"} 2`,
			`wisbox_programs_total{session="two",verdict="exited"} 2`,
			`wisbox_holder_up{session="one"} 1`,
			`wisbox_holder_up{session="uncounted"} 0`,
		} {
			assert.Contains(t, text, line+"\n")
		}
		assert.Equal(t, 1, strings.Count(text, "# TYPE wisbox_calls_total counter\n"))
	}
}
