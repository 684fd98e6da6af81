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

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

func TestFault_F01_KilledDuringCreate(t *testing.T) {
	hosttest.Slow(t)
	h := newHome(t)
	h.do("run", "--", "true") // Podman's service runs
	for i := range 20 {
		cmd := h.start("run", "--", "true")
		killedAfter(t, time.Duration(i)*30*time.Millisecond, cmd)
		require.Eventually(t, func() bool {
			if h.containers() <= 1 {
				return true
			}
			h.do("run", "--", "true") // Podman has created a container for a dead process: the next start removes it
			return false
		}, time.Minute, time.Millisecond, "at point %d", i)
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
	requireAwake(t, id)
	h.requireNothing()

	h.do("session", "create", "box")
	cmd = h.start(append([]string{"exec", "box", "--"}, program...)...) // the client of a holder
	awaitSleep(t, id)
	killed(t, cmd)
	requireAwake(t, id)
	cmd = h.start(append([]string{"exec", "box", "--"}, program...)...)
	awaitSleep(t, id)
	killHolder(t, "box", h)
	requireAwake(t, id)
	_ = cmd.Wait()
	began := time.Now()
	h.do("exec", "box", "--", "true")
	assert.Less(t, time.Since(began), 30*time.Second)
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
	call(t, s, "write_file", args{"file_path": "g", "content": "x"}) // a client's first change removes the leftovers
	temps, err := os.ReadDir(filepath.Join(filepath.Dir(filepath.Dir(path)), "tmp"))
	require.NoError(t, err)
	assert.Empty(t, temps)
	require.NoError(t, s.Close(t.Context()))
	h.do("session", "rm", "box")
	h.requireNothing()
}

func TestFault_F06_KilledDuringDelete(t *testing.T) {
	hosttest.Slow(t)
	h := newHome(t)
	for i := range 5 {
		h.do("session", "create", "box")
		h.do("exec", "box", "--", "sh", "-c", "for i in $(seq 40); do mkdir d$i; for j in $(seq 40); do : > d$i/f$j; done; done")
		cmd := h.start("session", "rm", "box")
		killedAfter(t, time.Duration(i)*70*time.Millisecond, cmd)
		if i%2 == 0 { // a second removal or a prune finishes it; a session whose removal had not begun stays
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
		assert.Less(t, time.Since(began), 30*time.Second)
		assert.Equal(t, code, cmd.ProcessState.ExitCode())
		assert.False(t, asleep(id))
		assert.Empty(t, h.sessions())
		assert.Zero(t, h.containers())
	}
}

func TestFault_F32_TheOwnerIsStopped(t *testing.T) {
	hosttest.Slow(t)
	h := newHome(t)
	id := mark()
	cmd := h.start("run", "--timeout", "10s", "--", "sleep", id)
	awaitSleep(t, id)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	requireAwake(t, id)
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
	kill(t, inspected(t, env.manager, s.ID(), "Pid"), syscall.SIGKILL) // the agent is the first process
	select {
	case a := <-done:
		assert.Equal(t, "sandbox_lost", a.str("status"))
	case <-time.After(30 * time.Second):
		t.Fatal("the call did not end")
	}
	requireAwake(t, id)
	assert.Equal(t, "kept\n", output(t, s, "cat f"))
}

// parentOf returns the parent of the process with that directory in /proc.
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

// TestAHolderKilledBeforeItTakesACall: the holder is stopped, so that the kernel has accepted the connection but nobody
// has read the request.
func TestAHolderKilledBeforeItTakesACall(t *testing.T) {
	h := newHome(t)
	short, err := os.MkdirTemp("/tmp", "wb") // so that the kernel's list has the socket's own path
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(short)) })
	h.cache = filepath.Join(short, "c")
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "sh", "-c", "echo kept > f")
	holder := holderOf(t, "box", h)
	kill(t, holder, syscall.SIGSTOP)
	require.Eventually(t, func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", holder))
		return strings.Contains(string(stat), ") T ")
	}, 30*time.Second, time.Millisecond)
	before := h.callers("box")
	cmd := h.command("exec", "box", "--", "sh", "-c", "echo once >> f; cat f")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return h.callers("box") > before }, 30*time.Second, time.Millisecond, "nobody calls")
	kill(t, holder, syscall.SIGKILL)
	require.NoError(t, cmd.Wait(), errs.String())
	assert.Equal(t, "kept\nonce\n", out.String())
	h.do("session", "rm", "box")
	h.requireNothing()
}

// callers returns the number of connections to a session's holder, without those to other holders.
func (h *home) callers(session string) int {
	h.t.Helper()
	raw, err := os.ReadFile("/proc/net/unix")
	require.NoError(h.t, err)
	return strings.Count(string(raw), filepath.Join(h.cache, "sessions", session, "hold.sock"))
}

// TestAHolderKilledWhileItsProgramsStandStill leaves the container paused with nobody to resume it.
func TestAHolderKilledWhileItsProgramsStandStill(t *testing.T) {
	needPause(t)
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "sh", "-c", "echo kept > f")
	snapshots := func() int { return strings.Count(h.do("call", "box", "snapshot_list"), "created_at") }
	for attempt := 1; ; attempt++ {
		h.do("exec", "box", "--", "sh", "-c", "for i in $(seq 40); do head -c 4M /dev/urandom > big$i; done")
		before := snapshots()
		killed := h.killedWhilePaused("box")
		began := time.Now()
		assert.Equal(t, "kept\n", h.do("exec", "box", "--", "cat", "f"))
		assert.Less(t, time.Since(began), 30*time.Second)
		if killed && snapshots() == before {
			break
		}
		require.Less(t, attempt, 20, "each snapshot was made, though its holder was killed")
	}
	h.do("session", "rm", "box")
	h.requireNothing()
}

// killedWhilePaused kills the holder of a session while a snapshot has paused its programs. It returns false if the
// snapshot ended first, which depends on the machine's speed.
func (h *home) killedWhilePaused(session string) bool {
	t := h.t
	t.Helper()
	holder, pid := holderOf(t, session, h), inspected(t, h.manager(), session, "Pid")
	paused := func() bool { return frozen(pid) }
	if env.isolation == sandbox.IsolationGVisor { // it pauses by itself, and only Podman knows that
		paused = func() bool { return inspect(t, h.manager(), session)["Paused"] == true }
	}
	cmd := h.command("call", session, "snapshot_create", `{"quiesce":true}`)
	ended := make(chan error, 1)
	require.NoError(t, cmd.Start())
	go func() { ended <- cmd.Wait() }()
	require.Eventually(t, func() bool { return len(ended) > 0 || paused() }, 30*time.Second, time.Millisecond, "the snapshot pauses nothing")
	if len(ended) > 0 {
		require.NoError(t, <-ended)
		return false
	}
	killProcess(t, holder)
	return <-ended != nil
}

// frozen reports whether a process is frozen, by its cgroup.
func frozen(pid int) bool {
	groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.SplitSeq(string(groups), "\n") {
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
