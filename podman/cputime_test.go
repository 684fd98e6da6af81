package podman

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProcessorTimeIsOfTheContainersOwnGroup: that of another group would miss
// what runs, or count others.
func TestProcessorTimeIsOfTheContainersOwnGroup(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  time.Duration // 0: an error
	}{
		"version 1": {map[string]string{
			"proc/7/cgroup": "4:cpu,cpuacct:/p/libpod-abc\n1:memory:/p/libpod-abc\n0::/other\n",
			"sys/fs/cgroup/cpuacct/p/libpod-abc/cpuacct.usage": "1234567\n",
		}, 1234567},
		"version 2": {map[string]string{
			"proc/7/cgroup":                       "0::/p/libpod-abc\n",
			"sys/fs/cgroup/p/libpod-abc/cpu.stat": "usage_usec 42\nuser_usec 40\nsystem_usec 2\n",
		}, 42 * time.Microsecond},
		"systemd and crun": {map[string]string{
			"proc/7/cgroup": "0::/user.slice/libpod-abc.scope/container\n",
			"sys/fs/cgroup/user.slice/libpod-abc.scope/cpu.stat":           "usage_usec 42\n",
			"sys/fs/cgroup/user.slice/libpod-abc.scope/container/cpu.stat": "usage_usec 41\n",
		}, 42 * time.Microsecond},
		"rootless on version 1": {map[string]string{
			"proc/7/cgroup":                       "4:cpuacct:/user\n",
			"sys/fs/cgroup/cpuacct/cpuacct.usage": "9\n", "sys/fs/cgroup/cpuacct/user/cpuacct.usage": "9\n",
		}, 0},
		"not counted": {map[string]string{
			"proc/7/cgroup": "0::/p/libpod-abc\n", "sys/fs/cgroup/p/libpod-abc/cpu.stat": "nr_periods 0\n",
		}, 0},
		"seen from another namespace": {map[string]string{"proc/7/cgroup": "0::/../libpod-abc\n"}, 0},
		"gone":                        {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cpuTime(fakeHost(t, c.files), 7, "abc")
			if c.want == 0 {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
