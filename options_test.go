package wisbox

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Limits that can't be enforced are refused when the session is opened, not by its first program.
func TestLimitsHaveBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits sandbox.Limits
		says   string
	}{
		{"cpus", sandbox.Limits{CPUs: math.NaN()}, "cpus is NaN; it must be at least 0.01"},
		{"cpus", sandbox.Limits{CPUs: math.Inf(1)}, "cpus is +Inf; it must be at most 4096"},
		{"cpus", sandbox.Limits{CPUs: -1}, "cpus is -1; it must be at least 0.01"},
		{"memory", sandbox.Limits{Memory: 1000}, "memory is 1000B; it must be at least 16MiB"},
		{"memory", sandbox.Limits{Memory: 16<<20 - 1}, "memory is 16777215 bytes; it must be at least 16MiB"},
		{"pids", sandbox.Limits{PIDs: 1 << 40}, "pids is 1099511627776; it must be at most 4194304"},
		{"tmp", sandbox.Limits{Memory: 64 << 20, Tmp: 33 << 20}, "tmp is 33MiB; it must be at most half of the memory, here 32MiB"},
		{"tmp", sandbox.Limits{Tmp: 1 << 30}, "it must be at most half of the memory, here 512MiB"},
		{"disk", sandbox.Limits{Disk: math.MaxInt64}, "it must be at most 8TiB"},
		{"inodes", sandbox.Limits{Inodes: math.MaxInt64}, "it must be at most 4294967295"},
		{"nofile", sandbox.Limits{NoFile: 1}, "nofile is 1; it must be at least 256"},
	} {
		_, err := (&SessionOptions{Limits: c.limits}).withDefaults()
		e := tool.AsError(err)
		require.NotNil(t, e, c.says)
		assert.Equal(t, tool.Invalid, e.Kind)
		assert.Equal(t, c.name, e.Field)
		assert.Contains(t, e.Message, c.says)
	}
	_, err := (&SessionOptions{Limits: sandbox.Limits{Memory: 64 << 20, Tmp: 32 << 20}}).withDefaults()
	require.NoError(t, err)
}
