package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/sandbox"
)

func TestFault_F01_KilledDuringCreate(t *testing.T) {
	h := newHome(t)
	h.do("run", "--", "true") // Podman's service runs
	for i := range 20 {
		cmd := h.start("run", "--", "true")
		killedAfter(t, time.Duration(i)*30*time.Millisecond, cmd)
		require.LessOrEqual(t, h.containers(), 1, "at point %d", i)
	}
	h.requireNothing()
	for i := range 5 {
		cmd := h.start("session", "create", "box")
		killedAfter(t, time.Duration(i)*8*time.Millisecond, cmd)
		h.do("prune")
		if len(h.sessions()) > 0 {
			h.do("call", "box", "write_file", `{"file_path":"f","content":"x"}`)
			h.do("session", "rm", "box")
		}
	}
	h.requireNothing()
}

func TestFault_F02_TheOwnerIsKilledDuringACommand(t *testing.T) {
	h := newHome(t)
	id := mark()
	program := []string{"sh", "-c", "setsid sleep " + id + " & sleep " + id}
	cmd := h.start(append([]string{"run", "--"}, program...)...)
	awaitSleep(t, id)
	killed(t, cmd)
	requireAwake(t, id, 3*time.Second)
	h.requireNothing()

	h.do("session", "create", "box")
	cmd = h.start(append([]string{"exec", "box", "--"}, program...)...) // the client of a holder
	awaitSleep(t, id)
	killed(t, cmd)
	requireAwake(t, id, 3*time.Second)
	cmd = h.start(append([]string{"exec", "box", "--"}, program...)...)
	awaitSleep(t, id)
	killHolder(t, "box", h)
	requireAwake(t, id, 3*time.Second)
	_ = cmd.Wait()
	began := time.Now()
	h.do("exec", "box", "--", "true")
	assert.Less(t, time.Since(began), 8*time.Second)
	h.do("session", "rm", "box")
	h.requireNothing()
}

func TestFault_F03_KilledDuringWriteAndEdit(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	s, err := h.manager().Attach(t.Context(), "box")
	require.NoError(t, err)
	path := filepath.Join(s.WorkspacePath(), "f")
	h.do("call", "box", "write_file", `{"file_path":"f","content":"x"}`)
	for range rounds(t, 20, 50) {
		cmd, out := h.helper("write", "box")
		require.True(t, out.Scan())
		killedAfter(t, rand.N(8*time.Millisecond), cmd)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Len(t, raw, wholeSize)
		require.Equal(t, strings.Repeat(string(raw[:1]), wholeSize), string(raw), "a part of a write")
	}
	require.NoError(t, s.Close(t.Context()))
	s, err = h.manager().Attach(t.Context(), "box")
	require.NoError(t, err)
	call(t, s, "write_file", args{"file_path": "g", "content": "x"}) // a client's first change clears what the dead left
	temps, err := os.ReadDir(filepath.Join(filepath.Dir(filepath.Dir(path)), "tmp"))
	require.NoError(t, err)
	assert.Empty(t, temps)
	require.NoError(t, s.Close(t.Context()))
	h.do("session", "rm", "box")
	h.requireNothing()
}

func TestFault_F06_KilledDuringDelete(t *testing.T) {
	h := newHome(t)
	for i := range 5 {
		h.do("session", "create", "box")
		h.do("exec", "box", "--", "sh", "-c", "for i in $(seq 40); do mkdir d$i; for j in $(seq 40); do : > d$i/f$j; done; done")
		cmd := h.start("session", "rm", "box")
		killedAfter(t, time.Duration(i)*70*time.Millisecond, cmd)
		if i%2 == 0 { // a second removal finishes it, or a prune; one that had not begun stays
			command(t, h.cache, "session", "rm", "box")
		} else if h.do("prune"); len(h.sessions()) > 0 {
			h.do("session", "rm", "box")
		}
		h.requireNothing()
	}
}

func TestFault_F23_ASignalDuringARun(t *testing.T) {
	h := newHome(t)
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		id := mark()
		cmd := h.start("run", "--", "sleep", id)
		awaitSleep(t, id)
		began := time.Now()
		require.NoError(t, cmd.Process.Signal(sig))
		_ = cmd.Wait()
		assert.Less(t, time.Since(began), 5*time.Second)
		assert.Equal(t, code, cmd.ProcessState.ExitCode())
		assert.False(t, asleep(id))
		assert.Empty(t, h.sessions())
		assert.Zero(t, h.containers())
	}
}

func TestFault_F32_TheOwnerIsStopped(t *testing.T) {
	h := newHome(t)
	id := mark()
	cmd := h.start("run", "--timeout", "2s", "--", "sleep", id)
	awaitSleep(t, id)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	requireAwake(t, id, 5*time.Second)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	_ = cmd.Wait()
	assert.Equal(t, 124, cmd.ProcessState.ExitCode())
	h.requireNothing()
}

func TestFault_F36_ATreeThatIsHardToDelete(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "python3", "-c", `
import os
for i in range(3000):
    os.mkdir("d"); os.chdir("d")
open("f", "w").close(); os.chmod("f", 0)
os.chdir("/workspace")
os.mkdir("closed"); open("closed/f", "w").close(); os.chmod("closed", 0)
os.chmod("d", 0)`)
	began := time.Now()
	h.do("session", "rm", "box")
	assert.Less(t, time.Since(began), 30*time.Second)
	h.requireNothing()
}

func TestFault_F38_TheAgentIsKilledDuringACall(t *testing.T) {
	s := open(t, nil)
	if os.Getuid() != 0 {
		t.Skip("the agent is a subordinate user's: only root can kill it from the host")
	}
	output(t, s, "echo kept > f")
	id := mark()
	done := make(chan answer, 1)
	go func() {
		a, _ := try(t, s, "shell_execute", args{"script": "sleep " + id, "timeout": 60})
		done <- a
	}()
	awaitSleep(t, id)
	kill(t, agentOf(t, inspected(t, env.manager, s.ID(), "Pid")), syscall.SIGKILL)
	select {
	case a := <-done:
		assert.Equal(t, "sandbox_lost", a.str("status"))
	case <-time.After(10 * time.Second):
		t.Fatal("the call did not end")
	}
	requireAwake(t, id, 5*time.Second)
	assert.Equal(t, "kept\n", output(t, s, "cat f"))
}

// agentOf finds the agent beside a container's first process: in its namespace,
// with a parent outside of it.
func agentOf(t *testing.T, first int) int {
	t.Helper()
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first))
	require.NoError(t, err)
	for _, dir := range processDirs() {
		if ns, err := os.Readlink(dir + "/ns/pid"); err != nil || ns != space || pidOf(dir) == first {
			continue
		}
		parent, err := parentOf(dir)
		if err != nil {
			continue // it has just ended
		}
		if outside, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", parent)); err == nil && outside != space {
			return pidOf(dir)
		}
	}
	t.Fatal("no agent found")
	return 0
}

// parentOf is the parent of the process with that directory in /proc.
func parentOf(dir string) (pid int, err error) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var state string
	_, err = fmt.Sscan(rest, &state, &pid)
	return pid, err
}

// TestAHolderKilledBeforeItTakesACall: it stands still, so that the kernel has
// taken the connection and nobody the request.
func TestAHolderKilledBeforeItTakesACall(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "sh", "-c", "echo kept > f")
	pids := holders(t, "box", h)
	require.Len(t, pids, 1)
	kill(t, pids[0], syscall.SIGSTOP)
	require.Eventually(t, func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pids[0]))
		return strings.Contains(string(stat), ") T ")
	}, 5*time.Second, time.Millisecond)
	before := connections(t)
	cmd := h.command("exec", "box", "--", "sh", "-c", "echo once >> f; cat f")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return connections(t) > before }, 20*time.Second, time.Millisecond, "nobody calls")
	kill(t, pids[0], syscall.SIGKILL)
	require.NoError(t, cmd.Wait(), errs.String())
	assert.Equal(t, "kept\nonce\n", out.String())
	h.do("session", "rm", "box")
	h.requireNothing()
}

// connections are those to the holders of this user's sessions.
func connections(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/net/unix")
	require.NoError(t, err)
	return strings.Count(string(raw), filepath.Join(rundir.Default(), "hold-"))
}

// TestAHolderKilledWhileItsProgramsStandStill: the container stays paused, and
// nobody is left to resume it.
func TestAHolderKilledWhileItsProgramsStandStill(t *testing.T) {
	needPause(t)
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "sh", "-c", "echo kept > f; for i in $(seq 40); do head -c 4M /dev/urandom > big$i; done")
	before := strings.Count(h.do("call", "box", "snapshot_list"), "created_at")
	pid := inspected(t, h.manager(), "box", "Pid")
	cmd := h.start("call", "box", "snapshot_create", `{"quiesce":true}`)
	paused := func() bool { return frozen(pid) }
	if env.isolation == sandbox.IsolationGVisor { // it pauses by itself, which Podman alone knows
		paused = func() bool { return inspect(t, h.manager(), "box")["Paused"] == true }
	}
	require.Eventually(t, paused, 30*time.Second, time.Millisecond, "the snapshot pauses nothing")
	killHolder(t, "box", h)
	_ = cmd.Wait()
	assert.NotZero(t, cmd.ProcessState.ExitCode(), "the snapshot was not made")
	began := time.Now()
	assert.Equal(t, "kept\n", h.do("exec", "box", "--", "cat", "f"))
	assert.Less(t, time.Since(began), 10*time.Second)
	assert.Equal(t, before, strings.Count(h.do("call", "box", "snapshot_list"), "created_at"))
	h.do("session", "rm", "box")
	h.requireNothing()
}

// frozen tells whether a process stands still, by its control group.
func frozen(pid int) bool {
	groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for _, line := range strings.Split(string(groups), "\n") {
		_, rest, _ := strings.Cut(line, ":")
		controller, group, _ := strings.Cut(rest, ":")
		switch controller {
		case "freezer":
			state, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup/freezer", group, "freezer.state"))
			if string(state) == "FROZEN\n" {
				return true
			}
		case "":
			state, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "cgroup.freeze"))
			if string(state) == "1\n" {
				return true
			}
		}
	}
	return false
}
