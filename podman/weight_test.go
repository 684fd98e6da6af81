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
	root := t.TempDir()
	write := func(path, text string) string {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	says := func(want, path string) {
		t.Helper()
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	shares, weight := write("sys/fs/cgroup/cpu/wisbox/cpu.shares", ""), write("sys/fs/cgroup/wisbox/cpu.weight", "")
	write("proc/7/cgroup", "2:cpu,cpuacct:/libpod_parent/libpod-a\n0::/\n")
	write("proc/8/cgroup", "0::/machine.slice/libpod-a.scope\n")
	write("proc/9/cgroup", "0::/wisbox-of-another/libpod-a\n")
	for _, other := range []int{7, 8, 9, 10} {
		require.NoError(t, weigh(root, other))
	}
	says("", shares)
	says("", weight)

	write("proc/11/cgroup", "2:cpu,cpuacct:/wisbox/libpod-a\n0::/\n")
	require.NoError(t, weigh(root, 11))
	says(strconv.Itoa(1024*runtime.NumCPU()), shares)
	says("", weight)
	write("proc/12/cgroup", "0::/wisbox/libpod-a\n")
	require.NoError(t, weigh(root, 12))
	says(strconv.Itoa(100*runtime.NumCPU()), weight)
	require.NoError(t, os.Remove(weight))
	require.Error(t, weigh(root, 12))
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
