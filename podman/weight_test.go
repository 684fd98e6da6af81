package podman

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSessionsWeighOneProcessOnEachProcessor: only the weight of their own parent is set.
func TestSessionsWeighOneProcessOnEachProcessor(t *testing.T) {
	const shares, weight = "sys/fs/cgroup/cpu/wisbox/cpu.shares", "sys/fs/cgroup/wisbox/cpu.weight"
	for _, c := range []struct{ groups, shares, weight string }{
		{"2:cpu,cpuacct:/libpod_parent/libpod-a\n0::/\n", "", ""},
		{"0::/machine.slice/libpod-a.scope\n", "", ""},
		{"0::/wisbox-of-another/libpod-a\n", "", ""},
		{"", "", ""}, // the process has ended
		{"2:cpu,cpuacct:/wisbox/libpod-a\n0::/\n", strconv.Itoa(1024 * runtime.NumCPU()), ""},
		{"0::/wisbox/libpod-a\n", "", strconv.Itoa(100 * runtime.NumCPU())},
	} {
		root := fakeHost(t, map[string]string{"proc/7/cgroup": c.groups, shares: "", weight: ""})
		require.NoError(t, weigh(root, 7))
		for path, want := range map[string]string{shares: c.shares, weight: c.weight} {
			got, err := os.ReadFile(filepath.Join(root, path))
			require.NoError(t, err)
			assert.Equal(t, want, string(got), c.groups)
		}
	}
	require.Error(t, weigh(fakeHost(t, map[string]string{"proc/7/cgroup": "0::/wisbox/libpod-a\n"}), 7), "the weight can't be set")
}

func TestOnlyPodmansOwnGroupsOfRootGetOurParent(t *testing.T) {
	info := &hostInfo{}
	for _, c := range []struct {
		manager  string
		rootless bool
		want     string
	}{{"cgroupfs", false, groupParent}, {"cgroupfs", true, ""}, {"systemd", false, ""}, {"systemd", true, ""}} {
		info.Host.CgroupManager, info.Host.Security.Rootless = c.manager, c.rootless
		assert.Equal(t, c.want, info.groupParent(), "%+v", c)
	}
}
