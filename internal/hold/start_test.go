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
