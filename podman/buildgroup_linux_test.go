package podman

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// TestABuildsGroupLeavesNothing, whether its build ends or is killed.
func TestABuildsGroupLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's builds have a cgroup; root's run of this test does it")
	}
	limits := sandbox.ImageBuild{Memory: 64 << 20, CPUs: 0.5}
	g, err := newBuildGroup(limits, slog.Default())
	if err != nil {
		hosttest.Lacks(t, "cgroups that root may make: %v", err)
	}
	step := func() *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		require.NoError(t, cmd.Start())
		for _, dir := range g.tops() {
			at, err := os.Open(dir)
			require.NoError(t, err)
			for range 20 { // a longer path than the kernel takes
				name := strings.Repeat("n", 250)
				require.NoError(t, unix.Mkdirat(int(at.Fd()), name, 0o755))
				below, err := openDirAt(at, name)
				require.NoError(t, err)
				require.NoError(t, at.Close())
				at = below
			}
			require.NoError(t, writeAt(at, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)))
			require.NoError(t, at.Close())
		}
		return cmd
	}
	ended := step()
	require.NotEmpty(t, g.tops())
	require.NoError(t, g.remove())
	require.ErrorContains(t, ended.Wait(), "killed")
	assert.Empty(t, g.tops())

	g, err = newBuildGroup(limits, slog.Default())
	require.NoError(t, err)
	killed := step()
	other, err := newBuildGroup(sandbox.ImageBuild{}, slog.Default())
	require.NoError(t, err)
	assert.NotEmpty(t, g.tops(), "its build still lives")
	require.NoError(t, g.held.Close()) // as the kernel does with the lock of a killed process
	next, err := newBuildGroup(sandbox.ImageBuild{}, slog.Default())
	require.NoError(t, err)
	require.ErrorContains(t, killed.Wait(), "killed")
	assert.Empty(t, g.tops())
	assert.NotEmpty(t, other.tops())
	require.NoError(t, other.remove())
	require.NoError(t, next.remove())
}

// TestAGroupThatCantBeBoundedIsNone: the kernel takes no quota of less than a millisecond.
func TestAGroupThatCantBeBoundedIsNone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's builds have a cgroup; root's run of this test does it")
	}
	g, err := newBuildGroup(sandbox.ImageBuild{CPUs: 0.001}, slog.Default())
	require.Error(t, err)
	require.Nil(t, g)
}

// TestAStepThatMakesManyGroupsIsNoticed before it has used up those of the machine.
func TestAStepThatMakesManyGroupsIsNoticed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's builds have a cgroup; root's run of this test does it")
	}
	g, err := newBuildGroup(sandbox.ImageBuild{}, slog.Default())
	if err != nil {
		hosttest.Lacks(t, "cgroups that root may make: %v", err)
	}
	defer func() { assert.NoError(t, g.remove()) }()
	noticed := make(chan struct{})
	defer g.watch(func() { close(noticed) })()
	top := g.tops()[0]
	for i := range maxGroups + 10 {
		if err = os.Mkdir(filepath.Join(top, strconv.Itoa(i)), 0o755); err != nil {
			break
		}
	}
	if unifiedCgroups() {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	<-noticed
}
