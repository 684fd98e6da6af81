package resident_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

func TestLimitsAreComparedWithWhatTheKernelSays(t *testing.T) {
	l := sandbox.Limits{CPUs: 1.5}.WithDefaults()
	rlimits := map[string][2]int64{"nofile": {100, 16384}, "fsize": {1, 2 << 30}}
	held := func(h agent.Hello, tmp int64) string {
		var out []string
		for _, s := range resident.Compare(l, h, tmp) {
			if s.Enforced {
				out = append(out, s.Name)
			}
		}
		return strings.Join(out, " ")
	}
	require.Equal(t, "cpus memory pids tmp nofile fsize", held(agent.Hello{CgroupVersion: 2, Rlimits: rlimits, Limits: map[string]string{
		"memory": "1073741824\n", "swap": "0", "pids": "256", "cpu": "150000 100000",
	}}, l.Tmp))
	require.Equal(t, "cpus memory pids nofile fsize", held(agent.Hello{CgroupVersion: 1, Rlimits: rlimits, Limits: map[string]string{
		"memory": "1073741824", "swap": "1073741824", "pids": "256", "cpu": "150000", "cpu_period": "100000",
	}}, 0))
	require.Empty(t, held(agent.Hello{CgroupVersion: 2, Rlimits: map[string][2]int64{"nofile": {-1, -1}}, Limits: map[string]string{
		"memory": "max", "pids": "max", "cpu": "max 100000",
	}}, 1<<40))
	for _, s := range resident.Compare(l, agent.Hello{Rlimits: map[string][2]int64{"nofile": {2408, 2408}, "fsize": {1, 2 << 30}}}, 0) {
		require.Equal(t, map[string]string{"nofile": "2408"}[s.Name], s.Holds, s.Name)
		if s.Name == "nofile" {
			require.Contains(t, s.By, "rlimit of 2408: ")
		}
	}
	require.Empty(t, held(agent.Hello{CgroupVersion: 1, Limits: map[string]string{"memory": "9223372036854771712", "cpu": "-1", "cpu_period": "100000"}}, 0))
}
