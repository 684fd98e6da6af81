//go:build integration

package podman

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// An idle sandbox must use no time at all, or no restore could ever skip its second look;
// and a program must be seen, however short it runs.
func TestOnlyWhatRunsUsesProcessorTime(t *testing.T) {
	h := newHost(t, nil)
	s := h.create(h.spec("meter"))
	if os.Getuid() != 0 && !unifiedCgroups() {
		_, err := s.CPUTime(t.Context())
		require.ErrorIs(t, err, sandbox.ErrUnsupported)
		return
	}
	used := func() time.Duration {
		d, err := s.CPUTime(t.Context())
		require.NoError(t, err)
		return d
	}
	for range 5 {
		before := used()
		sh(t, s, ":")
		assert.Greater(t, used(), before)
		var last time.Duration
		require.Eventually(t, func() bool { // the agent makes the next process ready
			was := last
			last = used()
			return last == was
		}, 30*time.Second, 50*time.Millisecond, "an idle sandbox uses processor time")
	}
}
