package hold

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// standIn starts a process that has two files of a session's directory open, as a holder has, and returns it.
func standIn(t *testing.T, root, dir string, files [2]string, args ...string) *os.Process {
	t.Helper()
	return standInWith(t, nil, root, dir, files, args...)
}

func standInWith(t *testing.T, attr *syscall.SysProcAttr, root, dir string, files [2]string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.Command("sh", args...)
	cmd.SysProcAttr = attr
	cmd.Dir = t.TempDir()
	script := fmt.Sprintf("cd %s && exec 8<%s 9<%s && echo ready; read end", dir, files[0], files[1])
	require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, args[0]), []byte(script), 0o600))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "WISBOX_CACHE=" + root}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return cmd.Process
}

// TestOnlyUnreachableHoldersAreEnded, of this root and this session.
func TestOnlyUnreachableHoldersAreEnded(t *testing.T) {
	r, dir := rootWith(t)
	for _, name := range []string{lifeName, lockName, "other"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	lives := func(p *os.Process) bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid)) // empty in a zombie
		return err == nil && len(state) > 0
	}
	sandboxed := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
	}
	life, both, neither := [2]string{lifeName, lifeName}, [2]string{lifeName, lockName}, [2]string{"other", "other"}
	spared := map[string]*os.Process{
		"of another root":        standIn(t, t.TempDir(), dir, life, "__hold", "box"),
		"of another session":     standIn(t, r.CacheDir, dir, life, "__hold", "boxes"),
		"it starts":              standIn(t, r.CacheDir, dir, neither, "__hold", "box"),
		"it waits for the lock":  standIn(t, r.CacheDir, dir, both, "__hold", "box"),
		"a sandbox's program":    standInWith(t, sandboxed, r.CacheDir, dir, life, "__hold", "box"),
		"a client":               standIn(t, r.CacheDir, dir, life, "exec", "box"),
		"a command of that name": standIn(t, r.CacheDir, dir, life, "exec", "box", "--", "__hold", "box"),
	}
	older := standIn(t, r.CacheDir, dir, life, "__hold", "--cache", r.CacheDir, "box")
	assert.Equal(t, []string{"box"}, r.EndUnreachable(t.Context(), "box", true))
	assert.True(t, lives(older), "a dry run")
	assert.Equal(t, []string{"box"}, r.EndUnreachable(t.Context(), "box", false))
	assert.False(t, lives(older))
	assert.Empty(t, r.EndUnreachable(t.Context(), "box", false))
	assert.Equal(t, []string{"boxes"}, r.EndUnreachable(t.Context(), "", true))
	for why, process := range spared {
		assert.True(t, lives(process), why)
	}

	holder := spared["it waits for the lock"]
	socket := filepath.Join(dir, socketName)
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	inode, err := inodeOf(socket)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, lockName), fmt.Appendf(nil, "%d %d\n", holder.Pid, inode), 0o600))
	assert.Empty(t, r.EndUnreachable(t.Context(), "box", false))
	require.NoError(t, os.Rename(socket, socket+"-moved"))
	assert.Equal(t, []string{"box"}, r.EndUnreachable(t.Context(), "box", false))
	assert.False(t, lives(holder))
}

// TestALookForHoldersReadsLittle of what others' programs, which may call themselves holders, have as command line and environment.
func TestALookForHoldersReadsLittle(t *testing.T) {
	r, _ := rootWith(t)
	const long = 100 << 10
	name := strings.Repeat("x", long)
	cmd := exec.Command("cat", "__hold", name, name, name, name, name, "-") // cat goes on to stdin after files that don't exist
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	bytes := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := bytes()
	_, yes := r.unreachable(cmd.Process.Pid)
	assert.False(t, yes)
	assert.Less(t, bytes()-before, uint64(8*maxArgs))
}
