package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// TestOpeningASessionWakesNoProgramsThatASnapshotHasStandStill: opening resumes paused programs only if the snapshot's
// process is dead.
func TestOpeningASessionWakesNoProgramsThatASnapshotHasStandStill(t *testing.T) {
	hosttest.Slow(t)
	needPause(t)
	h := newHome(t)
	h.do("session", "create", "box")
	id := h.detached("box", "--", "sleep", "600")
	holder := holderOf(t, "box", h)
	other, err := h.manager().Attach(t.Context(), "box") // does its work in this process
	require.NoError(t, err)
	defer other.Close(t.Context())

	snapshot := flock.New(filepath.Join(h.cache, "sessions/box/pause.lock")) // held like by a snapshot in another process
	require.NoError(t, snapshot.Lock())
	b := h.manager().Backend()
	sb, err := b.Open(t.Context(), sandbox.Spec{ID: "box", Image: other.Options().Image, Workspace: other.WorkspacePath(), Isolation: env.isolation})
	require.NoError(t, err)
	pauser, ok := sandbox.As[sandbox.Pauser](sb)
	require.True(t, ok)
	require.NoError(t, pauser.Pause(t.Context()))

	about, err := other.Inspect(t.Context())
	require.NoError(t, err)
	assert.Contains(t, about.Gaps[0], "has paused this session's programs")
	_, err = try(t, other, "shell_execute", args{"commands": []string{"true"}})
	assert.Equal(t, "busy", string(kind(err)), "%v", err)
	assert.Equal(t, true, inspect(t, h.manager(), "box")["Paused"], "nobody has woken them")

	require.NoError(t, snapshot.Unlock()) // like a dead process that has not resumed
	assert.Equal(t, "on\n", output(t, other, "echo on"))
	assert.Equal(t, holder, holderOf(t, "box", h))
	assert.Contains(t, h.do("ps", "box"), id)
	require.NoError(t, sb.Detach())
	require.NoError(t, other.Close(t.Context()))
	h.do("session", "rm", "box")
}

// counting starts a process of the session box that appends to the file n. grows waits until the file grows.
func (h *home) counting() (id string, grows func()) {
	h.t.Helper()
	id = h.detached("box", "--", "sh", "-c", "while :; do echo x >> n; sleep 0.01; done")
	grows = func() {
		h.t.Helper()
		from := h.size()
		h.await("the process goes on", func() bool { return h.size() > from })
	}
	grows()
	return id, grows
}

// requirePaused checks what everybody sees of a paused session.
func (h *home) requirePaused() {
	h.t.Helper()
	assert.Equal(h.t, true, inspect(h.t, h.manager(), "box")["Paused"])
	assert.Regexp(h.t, `(?m)^box +paused `, h.do("session", "list"))
	assert.Contains(h.t, h.do("session", "inspect", "box"), "session    box (paused)")
	for _, refused := range [][]string{
		{"exec", "box", "--", "true"}, {"exec", "-d", "box", "--", "true"},
		{"call", "box", "shell_execute", `{"script":"true"}`}, {"call", "box", "process_start", `{"commands":["true"]}`},
		{"call", "box", "evaluate_python", `{"code":"1"}`}, {"call", "box", "describe-symbol", `{"name":"car"}`}, {"session", "reset", "box"},
	} {
		said := h.fail(refused...)
		assert.Contains(h.t, said, "session box is paused", "%v", refused)
		assert.Contains(h.t, said, "wisbox resume box", "%v", refused)
	}
}

func TestAPausedSessionStandsStillUntilItIsResumed(t *testing.T) {
	needPause(t)
	h := newHome(t)
	h.do("session", "create", "box")
	id, grows := h.counting()
	pid := h.process(id).PID
	assert.Equal(t, "box\n", h.do("session", "pause", "box"))
	h.requirePaused()
	assert.Equal(t, "box\n", h.do("session", "pause", "box"), "it is paused already")

	assert.Equal(t, "running", h.process(id).State)
	_ = h.do("logs", "box", id)
	for _, steers := range [][]string{
		{"kill", "box", id}, {"attach", "--no-stdin", "box", id},
		{"call", "box", "process_write", `{"process_id":"` + id + `","data":"x"}`}, {"call", "box", "process_signal", `{"process_id":"` + id + `","signal":"TERM"}`},
	} {
		assert.Contains(t, h.fail(steers...), "is paused", "%v", steers)
	}

	// Tools that only work on files still work.
	h.do("call", "box", "write_file", `{"file_path":"f","content":"one\n"}`)
	assert.Contains(t, h.do("call", "box", "read_file", `{"file_path":"f"}`), "one")
	h.do("call", "box", "edit_file", `{"file_path":"f","old_string":"one","new_string":"two"}`)
	h.do("undo", "box")
	local := filepath.Join(t.TempDir(), "f")
	h.do("cp", "box:f", local)
	raw, err := os.ReadFile(local)
	require.NoError(t, err)
	assert.Equal(t, "one\n", string(raw))
	h.do("cp", local, "box:g")
	h.do("snapshot", "create", "box", "--quiesce")
	h.do("session", "save", "box", filepath.Join(t.TempDir(), "box.tar"))
	h.do("session", "clone", "box", "twin")
	assert.Equal(t, "one\n", h.do("exec", "twin", "--", "cat", "g"), "a clone isn't paused")
	h.do("prune")
	h.requirePaused()

	assert.Equal(t, "box\n", h.do("session", "resume", "box"))
	assert.Equal(t, "box\n", h.do("session", "resume", "box"), "it goes on already")
	grows()
	assert.Equal(t, pid, h.process(id).PID, "it is the same program")
	assert.Equal(t, "one\n", h.do("exec", "box", "--", "cat", "f"))
	record := h.do("log", "box")
	assert.Regexp(t, `(?m) pause +ok `, record)
	assert.Regexp(t, `(?m) resume +ok `, record)
	h.do("session", "rm", "box", "twin")
	h.requireNothing()
}

// TestAPauseOutlivesTheHolder, however the holder ends, and so do the processes.
func TestAPauseOutlivesTheHolder(t *testing.T) {
	hosttest.Slow(t)
	needPause(t)
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.do("session", "create", "box")
			id, grows := h.counting()
			pid := h.process(id).PID
			h.do("session", "pause", "box")
			for range 2 {
				holder := holderOf(t, "box", h)
				kill(t, holder, signal)
				require.Eventually(t, func() bool { return isZombie("/proc/" + strconv.Itoa(holder)) }, 30*time.Second, 5*time.Millisecond)
				h.requirePaused()
				assert.Contains(t, h.fail("ps", "box"), "wisbox resume")
			}
			h.do("session", "resume", "box")
			grows()
			assert.Equal(t, pid, h.process(id).PID)
			h.do("kill", "box", id)
			assert.Equal(t, 1, ended(h.do("log", "box", "--json"), id), "its end is recorded once")
			h.do("session", "rm", "box")
			h.requireNothing()
		})
	}
}

func TestAPausedSessionThatLostItsContainerGetsAnother(t *testing.T) {
	needPause(t)
	for name, loseHolder := range map[string]bool{"with its holder": false, "after a reboot": true} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.do("session", "create", "box")
			h.counting()
			h.do("session", "pause", "box")
			if loseHolder {
				killHolder(t, "box", h)
			}
			require.NoError(t, h.manager().Backend().Remove(t.Context(), "box"))
			assert.Contains(t, h.do("session", "list"), "paused")
			_, said, code := command(t, h.cache, "session", "resume", "box")
			assert.Zero(t, code, said)
			assert.Contains(t, said, "the container was lost")
			assert.Equal(t, 1, h.containers())
			assert.Contains(t, h.do("exec", "box", "--", "cat", "n"), "x\n")
			h.do("session", "rm", "box")
			h.requireNothing()
		})
	}
}

func TestAPausedSessionIsRemoved(t *testing.T) {
	needPause(t)
	h := newHome(t)
	for _, program := range []bool{true, false} {
		h.do("session", "create", "box")
		if program {
			h.counting()
		}
		h.do("session", "pause", "box")
		if !program {
			assert.Contains(t, h.fail("exec", "box", "--", "true"), "is paused")
			assert.Zero(t, h.containers(), "a paused session gets no container")
		}
		h.do("session", "rm", "box")
		h.requireNothing()
	}
}

// TestAPausedSessionIsStopped with a holder or after the holder was killed, whether or not another client has the
// session open.
func TestAPausedSessionIsStopped(t *testing.T) {
	hosttest.Slow(t)
	needPause(t)
	for i := range 4 {
		killed, open := i&1 > 0, i&2 > 0
		h := newHome(t)
		h.do("session", "create", "box")
		h.counting()
		h.do("session", "pause", "box")
		leave := func() error { return nil }
		if open {
			s, err := h.manager().Attach(t.Context(), "box")
			require.NoError(t, err)
			leave = func() error { return s.Close(t.Context()) }
		}
		if killed {
			holder := holderOf(t, "box", h)
			kill(t, holder, syscall.SIGKILL)
			require.Eventually(t, func() bool { return isZombie("/proc/" + strconv.Itoa(holder)) }, 30*time.Second, 5*time.Millisecond)
		}
		h.do("stop", "box")
		assert.Zero(t, h.containers())
		assert.NotContains(t, h.do("ls"), "paused")
		assert.Equal(t, "on\n", h.do("exec", "box", "--", "echo", "on"))
		require.NoError(t, leave())
		h.do("session", "rm", "box")
		h.requireNothing()
	}
}

// TestAnEmbedderPauses an ephemeral session, whose work is done in this process.
func TestAnEmbedderPauses(t *testing.T) {
	needPause(t)
	s := open(t, nil)
	out := call(t, s, "process_start", args{"script": "echo up; while :; do sleep 0.01; done"})
	call(t, s, "evaluate_python", args{"code": "x = 7", "state": "kept"})
	require.NoError(t, s.Pause(t.Context()))
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "paused", in.State)
	assert.Equal(t, "paused", in.Sandbox.State)
	assert.NotNil(t, in.Paused)
	_, err = try(t, s, "evaluate_python", args{"code": "x", "state": "kept"})
	assert.Equal(t, "unavailable", string(kind(err)), "%v", err)
	done, err := s.Resume(t.Context())
	require.NoError(t, err)
	assert.Equal(t, wisbox.Resumed{}, done)
	list, err := s.Processes(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, out.str("process_id"), list[0].ProcessID)
	assert.Equal(t, "running", list[0].State)
	assert.Equal(t, "7", strings.TrimSpace(call(t, s, "evaluate_python", args{"code": "x", "state": "kept"}).str("value_repr")))
	require.NoError(t, s.Pause(t.Context())) // it is closed paused
}

// underWay starts a command whose program writes the file up and doesn't end by itself, and returns once it runs. over
// is closed at the command's end.
func (h *home) underWay() (cmd *exec.Cmd, over <-chan struct{}) {
	h.t.Helper()
	cmd, over, up := h.tryUnderWay()
	require.True(h.t, up, "the program runs")
	return cmd, over
}

// tryUnderWay is like underWay, for a session that may end before; up reports whether the program runs.
func (h *home) tryUnderWay() (cmd *exec.Cmd, over <-chan struct{}, up bool) {
	h.t.Helper()
	file := filepath.Join(h.cache, "sessions/box/workspace/up")
	_ = os.Remove(file)
	cmd = h.start("exec", "box", "--", "sh", "-c", "echo > up; while :; do echo x >> n; sleep 0.01; done")
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	h.await("the program runs, or has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		_, err := os.Stat(file)
		up = err == nil
		return up
	})
	return cmd, ended, up
}

func (h *home) await(what string, is func() bool) {
	h.t.Helper()
	require.Eventually(h.t, is, 60*time.Second, 10*time.Millisecond, what)
}

// soon is like do, for a command that another running call may refuse for a moment.
func (h *home) soon(args ...string) {
	h.t.Helper()
	h.await(strings.Join(args, " "), func() bool { _, _, code := command(h.t, h.cache, args...); return code == 0 })
}

// ends waits for the end of a command.
func (h *home) ends(what string, over <-chan struct{}) {
	h.t.Helper()
	select {
	case <-over:
	case <-time.After(60 * time.Second):
		h.t.Fatal(what + " doesn't end")
	}
}

// size returns the bytes that counting and underWay have written so far.
func (h *home) size() int64 {
	info, err := os.Stat(filepath.Join(h.cache, "sessions/box/workspace/n"))
	if err != nil {
		return 0
	}
	return info.Size()
}

func TestAPausedSessionWithACallUnderWayIsRemoved(t *testing.T) {
	needPause(t)
	h := newHome(t)
	h.do("session", "create", "box")
	_, over := h.underWay()
	h.do("session", "pause", "box")
	h.do("session", "rm", "box")
	h.ends("the call", over)
	h.requireNothing()
}

// TestAHolderOfAPausedSessionEndsBesideACall in any way: the call ends, and detached processes continue with the
// resume.
func TestAHolderOfAPausedSessionEndsBesideACall(t *testing.T) {
	needPause(t)
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.do("session", "create", "box")
			id := h.detached("box", "--", "sh", "-c", "while :; do echo x >> m; sleep 0.01; done")
			pid := h.process(id).PID
			_, over := h.underWay()
			attached, left := h.start("attach", "--no-stdin", "box", id), make(chan struct{})
			go func() { _ = attached.Wait(); close(left) }()
			h.do("session", "pause", "box")
			holder := holderOf(t, "box", h)
			kill(t, holder, signal)
			h.await("the holder's end", func() bool { return isZombie("/proc/" + strconv.Itoa(holder)) })
			h.ends("the call", over)
			h.ends("the attached client", left)
			h.requirePaused()
			at := h.size()
			h.do("session", "resume", "box")
			assert.Equal(t, pid, h.process(id).PID)
			assert.Equal(t, "running", h.process(id).State)
			h.await("the call's program ends", h.quiet)
			assert.GreaterOrEqual(t, h.size(), at)
			h.do("session", "rm", "box")
			h.requireNothing()
		})
	}
}

// TestACallUnderWayGoesOnWithTheResume, unless its client has left: then it is ended.
func TestACallUnderWayGoesOnWithTheResume(t *testing.T) {
	needPause(t)
	h := newHome(t)
	h.do("session", "create", "box")
	for _, leaves := range []bool{false, true} {
		cmd, over := h.underWay()
		h.do("session", "pause", "box")
		if leaves {
			kill(t, cmd.Process.Pid, syscall.SIGINT)
			h.ends("the client", over)
		}
		at := h.size()
		h.requirePaused()
		assert.Equal(t, at, h.size())
		h.do("session", "resume", "box")
		if !leaves {
			h.await("the program goes on", func() bool { return h.size() > at })
			kill(t, cmd.Process.Pid, syscall.SIGINT)
			h.ends("the client", over)
		}
		h.await("the program ends", h.quiet)
	}
	h.do("session", "rm", "box")
	h.requireNothing()
}

// quiet reports whether nothing writes n.
func (h *home) quiet() bool {
	from := h.size()
	h.do("exec", "box", "--", "sleep", "0.1")
	return h.size() == from
}

// TestATimeToLiveEndsAPausedSession with a call under way.
func TestATimeToLiveEndsAPausedSession(t *testing.T) {
	hosttest.Slow(t)
	needPause(t)
	for ttl := 8 * time.Second; ; ttl *= 2 {
		h := newHome(t)
		h.do("session", "create", "box", "--ttl", ttl.String())
		began := time.Now()
		_, over, up := h.tryUnderWay()
		holding := holders(t, "box", h)
		_, said, code := command(t, h.cache, "session", "pause", "box")
		if (!up || len(holding) != 1 || time.Since(began) > ttl/2) && ttl < 5*time.Minute {
			continue // on a slow machine it may have ended before
		}
		require.True(t, up)
		require.Len(t, holding, 1)
		require.Zero(t, code, said)
		assert.Contains(t, said, "the session ends at")
		select {
		case <-over:
		case <-time.After(ttl + 60*time.Second):
			t.Fatal("the call doesn't end")
		}
		h.await("the holder's end", func() bool { return isZombie("/proc/" + strconv.Itoa(holding[0])) })
		assert.Zero(t, h.containers())
		assert.Contains(t, h.fail("session", "resume", "box"), "has ended")
		h.do("session", "rm", "box")
		h.requireNothing()
		return
	}
}

// TestTheLimitOfACallDoesNotRunWhileItsSessionIsPaused.
func TestTheLimitOfACallDoesNotRunWhileItsSessionIsPaused(t *testing.T) {
	hosttest.Slow(t)
	needPause(t)
	for limit := 6 * time.Second; ; limit *= 2 {
		h := newHome(t)
		h.do("session", "create", "box")
		began := time.Now()
		id := h.detached("--timeout", limit.String(), "box", "--", "sh", "-c", "while :; do echo x >> n; sleep 0.01; done")
		h.do("session", "pause", "box")
		paused := time.Now()
		time.Sleep(limit + time.Second) // longer than the limit
		stood := time.Since(paused)
		h.do("session", "resume", "box")
		state := h.process(id).State
		if awake := time.Since(began) - stood; awake > limit/2 && limit < 5*time.Minute {
			continue // on a slow machine the limit may have passed while it ran
		}
		require.Equal(t, "running", state)
		require.Eventually(t, func() bool { return h.process(id).State != "running" }, limit+60*time.Second, 10*time.Millisecond, "the limit")
		h.do("session", "rm", "box")
		h.requireNothing()
		return
	}
}

// TestAnInterruptedPauseIsWholeOrNone, and so is a resume; the session continues to work in any case.
func TestAnInterruptedPauseIsWholeOrNone(t *testing.T) {
	hosttest.Slow(t)
	needPause(t)
	h := newHome(t)
	h.do("session", "create", "box")
	id, grows := h.counting()
	for i := range 6 {
		for _, what := range []string{"pause", "resume"} {
			cmd := h.start("session", what, "box")
			time.Sleep(time.Duration(i) * 15 * time.Millisecond) // the time is the fault
			_ = cmd.Process.Signal(syscall.SIGINT)
			_ = cmd.Wait()
		}
		h.soon("session", "pause", "box")
		h.requirePaused()
		h.soon("session", "resume", "box")
		grows()
		assert.Equal(t, "running", h.process(id).State)
	}
	h.do("session", "rm", "box")
	h.requireNothing()
}

// TestAPausedSessionTakesNoConnection at its ports.
func TestAPausedSessionTakesNoConnection(t *testing.T) {
	needPause(t)
	s := open(t, nil)
	call(t, s, "process_start", args{"commands": []string{"python3", "-m", "http.server", "8000"}, "wait_port": 8000})
	require.NoError(t, s.Pause(t.Context()))
	_, err := s.Dial(t.Context(), 8000)
	assert.Equal(t, "unavailable", string(kind(err)), "%v", err)
	_, err = s.Resume(t.Context())
	require.NoError(t, err)
	conn, err := s.Dial(t.Context(), 8000)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// TestAnEmbedderClosesAPausedSession with calls under way, of a program and an evaluation.
func TestAnEmbedderClosesAPausedSession(t *testing.T) {
	needPause(t)
	s := open(t, nil)
	var calls sync.WaitGroup
	calls.Go(func() { _, _ = try(t, s, "shell_execute", args{"script": "echo > a; sleep 600"}) })
	calls.Go(func() {
		_, _ = try(t, s, "evaluate_python", args{"code": "open('b', 'w').close()\nimport time; time.sleep(600)", "state": "kept"})
	})
	require.Eventually(t, func() bool {
		_, errA := os.Stat(filepath.Join(s.WorkspacePath(), "a"))
		_, errB := os.Stat(filepath.Join(s.WorkspacePath(), "b"))
		return errA == nil && errB == nil
	}, 60*time.Second, 5*time.Millisecond)
	require.NoError(t, s.Pause(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	calls.Wait()
}

// TestAHostWithoutAFreezerPausesNothing and reports that.
func TestAHostWithoutAFreezerPausesNothing(t *testing.T) {
	need(t)
	service, err := env.backend.Service(t.Context())
	require.NoError(t, err)
	if !service.Rootless || service.CgroupVersion != "v1" {
		t.Skip("this host can pause; rootless Podman on cgroup v1 can't")
	}
	h := newHome(t)
	h.do("session", "create", "box")
	id, grows := h.counting()
	assert.Contains(t, h.fail("session", "pause", "box"), "cgroup v2")
	assert.Contains(t, h.do("session", "inspect", "box"), "session    box (running)")
	grows()
	h.do("session", "resume", "box")
	assert.Equal(t, "running", h.process(id).State)
	h.do("session", "rm", "box")
	h.requireNothing()
}
