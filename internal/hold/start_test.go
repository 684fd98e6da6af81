package hold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAHolderHasTimeForItsTimers checks a holder's timer slack, and that its starter keeps the
// kernel's default.
func TestAHolderHasTimeForItsTimers(t *testing.T) {
	at := filepath.Join(t.TempDir(), "slack")
	script := `cat /proc/self/timerslack_ns >"$0"; echo ready`
	require.NoError(t, Root{Command: []string{"sh", "-c", script, at}}.Launch(t.Context(), "box"))
	got, err := os.ReadFile(at)
	require.NoError(t, err)
	assert.Equal(t, "1000000", strings.TrimSpace(string(got)))
	require.NoError(t, relaxed(func() error { return nil }))
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, thread := range threads {
		if own, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns"); err == nil {
			assert.Equal(t, "50000", strings.TrimSpace(string(own)))
		}
	}
}

// TestAHolderGetsNoKeys: it outlives the process that has them.
func TestAHolderGetsNoKeys(t *testing.T) {
	for _, name := range []string{"WISBOX_SERVE_KEYS", "WISBOX_API_KEY", "AWS_SECRET_ACCESS_KEY", "ANTHROPIC_API_KEY", "PASSWORD"} {
		t.Setenv(name, "a-key")
	}
	t.Setenv("WISBOX_RUNSC", "/opt/runsc")
	at := filepath.Join(t.TempDir(), "environment")
	require.NoError(t, Root{CacheDir: "/state", Command: []string{"sh", "-c", `cat "/proc/$$/environ" >"$0"; echo ready`, at}}.Launch(t.Context(), "box"))
	raw, err := os.ReadFile(at)
	require.NoError(t, err)
	env := strings.Split(string(raw), "\x00")
	assert.NotContains(t, string(raw), "a-key")
	assert.Contains(t, env, "WISBOX_RUNSC=/opt/runsc")
	assert.Contains(t, env, "WISBOX_CACHE=/state")
	assert.Contains(t, env, "PATH="+os.Getenv("PATH"))
}
