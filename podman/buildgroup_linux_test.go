package podman

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// TestABuildsGroupLeavesNothing, whether its build ends or is killed.
func TestABuildsGroupLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's builds have a cgroup; root's run of this test does it")
	}
	limits := sandbox.ImageBuild{Memory: 64 << 20, CPUs: 0.5}
	g, err := newBuildGroup(limits)
	if err != nil {
		hosttest.Lacks(t, "cgroups that root may make: %v", err)
	}
	step := func() *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		require.NoError(t, cmd.Start())
		for _, dir := range g.dirs() {
			below := filepath.Join(dir, "step")
			require.NoError(t, os.Mkdir(below, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
		}
		return cmd
	}
	ended := step()
	require.NotEmpty(t, g.dirs())
	require.NoError(t, g.remove())
	require.ErrorContains(t, ended.Wait(), "killed")
	assert.Empty(t, g.dirs())

	g, err = newBuildGroup(limits)
	require.NoError(t, err)
	killed := step()
	other, err := newBuildGroup(sandbox.ImageBuild{})
	require.NoError(t, err)
	assert.NotEmpty(t, g.dirs(), "its build still lives")
	require.NoError(t, g.held.Close()) // as the kernel does with the lock of a killed process
	next, err := newBuildGroup(sandbox.ImageBuild{})
	require.NoError(t, err)
	require.ErrorContains(t, killed.Wait(), "killed")
	assert.Empty(t, g.dirs())
	assert.NotEmpty(t, other.dirs())
	require.NoError(t, other.remove())
	require.NoError(t, next.remove())
}
