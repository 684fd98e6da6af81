package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func TestFault_F07_TheServiceIsKilledDuringACall(t *testing.T) {
	hosttest.Slow(t)
	need(t)
	run, err := os.MkdirTemp("/tmp", "wf")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: filepath.Join(t.TempDir(), "c"), Podman: podman.Options{RuntimeDir: run}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, m.Close()); killService(t, run) }()
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	output(t, s, "true")
	id := mark()
	done := make(chan answer, 1)
	go func() {
		a, err := try(t, s, "shell_execute", args{"script": "sleep " + id, "timeout": 10})
		if err != nil {
			a = answer{"status": string(kind(err))}
		}
		done <- a
	}()
	awaitSleep(t, id)
	killService(t, run)
	select {
	case a := <-done:
		assert.Equal(t, "timed_out", a.str("status"), "the agent's own socket doesn't end with the service")
	case <-time.After(time.Minute):
		t.Fatal("the call did not end")
	}
	requireAwake(t, id)
	assert.Equal(t, "again\n", output(t, s, "echo again"), "without a new start of wisbox")
	status, _ := api(t, m, http.MethodGet, "/info")
	assert.Equal(t, http.StatusOK, status, "these tests reach the new service too")
	require.NoError(t, s.Close(t.Context()))
}

// killService kills the private service of a runtime directory.
func killService(t *testing.T, run string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(run, "podman-*/service.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var p struct{ PID int }
	require.NoError(t, json.Unmarshal(raw, &p))
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	require.NoError(t, err)
	require.Contains(t, string(line), run, "the service has ended, and its number is another's")
	kill(t, p.PID, syscall.SIGKILL)
}

func TestFault_F09_TheContainerIsRemoved(t *testing.T) {
	s := open(t, nil)
	output(t, s, "echo kept > f")
	require.Eventually(t, func() bool { // Podman itself may need a second try
		_, _ = api(t, env.manager, http.MethodDelete, "/containers/"+object(t, env.manager, s.ID())+"?force=true")
		return object(t, env.manager, s.ID()) == ""
	}, time.Minute, 100*time.Millisecond)
	assert.Equal(t, "kept\n", recovered(t, s, "cat f"))
}

func TestFault_F10_TheContainersFirstProcessIsKilled(t *testing.T) {
	for _, how := range []string{"kill?signal=KILL", "stop?t=0"} {
		s := open(t, nil)
		output(t, s, "echo kept > f")
		status, _ := api(t, env.manager, http.MethodPost, "/containers/"+object(t, env.manager, s.ID())+"/"+how)
		require.Less(t, status, 300)
		assert.Equal(t, "kept\n", recovered(t, s, "cat f"), how)
	}
}

func TestFault_F11_TheContainerIsPaused(t *testing.T) {
	needPause(t)
	s := open(t, nil)
	output(t, s, "echo kept > f")
	status, body := api(t, env.manager, http.MethodPost, "/containers/"+object(t, env.manager, s.ID())+"/pause")
	require.Less(t, status, 300, "%v", body)
	began := time.Now()
	a, err := try(t, s, "shell_execute", args{"script": "true", "timeout": 2})
	if err != nil {
		a = answer{"status": string(kind(err))}
	}
	assert.Contains(t, []string{"timed_out", "sandbox_lost", "unavailable", "exited"}, a.str("status"), "%v %v", a, err)
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.Equal(t, "kept\n", output(t, s, "cat f"))
	api(t, env.manager, http.MethodPost, "/containers/"+object(t, env.manager, s.ID())+"/pause") // removal works while it is paused
}

func needPause(t *testing.T) {
	t.Helper()
	need(t)
	service, err := env.backend.Service(t.Context())
	require.NoError(t, err)
	if service.Rootless && service.CgroupVersion == "v1" {
		t.Skip("rootless Podman can't pause on cgroup v1; root's run of this test does")
	}
}

func TestFault_F13_TheOverlayIsDeleted(t *testing.T) {
	s := open(t, nil)
	output(t, s, "echo x > f")
	require.NoError(t, os.RemoveAll(s.WorkspacePath())) // a mount point stays, empty
	for name, arguments := range map[string]args{"shell_execute": {"script": "pwd"}, "ls": nil, "write_file": {"file_path": "g", "content": "x"}} {
		_, err := try(t, s, name, arguments)
		if err == nil {
			continue
		}
		assert.Contains(t, []tool.Kind{tool.Unavailable, tool.Closed}, kind(err), "%s: %v", name, err)
		for _, raw := range []string{"container mount namespace", s.WorkspacePath(), "runc", "crun"} {
			assert.NotContains(t, err.Error(), raw)
		}
	}
}

func TestFault_F14_TheOverlayIsReplacedByALink(t *testing.T) {
	s := open(t, nil)
	target := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(target, "secret"), []byte("host"), 0o644))
	require.NoError(t, os.Rename(s.WorkspacePath(), s.WorkspacePath()+".away"))
	require.NoError(t, os.Symlink(target, s.WorkspacePath()))
	a, err := try(t, s, "shell_execute", args{"script": "ls; cat secret"})
	assert.Error(t, err, "%v", a)
	a, err = try(t, s, "read_file", args{"file_path": "secret"})
	assert.Error(t, err, "%v", a)
	require.NoError(t, os.Remove(s.WorkspacePath()))
	require.NoError(t, os.Rename(s.WorkspacePath()+".away", s.WorkspacePath()))
}

func TestFault_F18_ARecordIsCut(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "hurt")
	h.do("session", "create", "whole")
	path := filepath.Join(h.cache, "sessions/hurt/session.json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw[:len(raw)/2], 0o600))
	assert.Regexp(t, `hurt +lost`, h.do("session", "list"))
	assert.Contains(t, h.fail("exec", "hurt", "--", "true"), "lost")
	h.do("prune")
	assert.Equal(t, []string{"hurt", "whole"}, h.sessions(), "a person decides")
	h.do("call", "whole", "write_file", `{"file_path":"f","content":"x"}`)
	h.do("session", "rm", "hurt", "whole")
	h.requireNothing()
}

func TestFault_F19_LocksOfADeadProcessAreFree(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("call", "box", "write_file", `{"file_path":"f","content":"x"}`)
	cmd, out := h.helper("write", "box")
	require.True(t, out.Scan())
	killed(t, cmd)
	began := time.Now()
	h.do("call", "box", "write_file", `{"file_path":"g","content":"x"}`)
	assert.Less(t, time.Since(began), 30*time.Second, "nobody waits for the dead")
	h.do("session", "rm", "box")
	h.requireNothing()
}

func TestFault_F20_TwoProcessesOneCounter(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("call", "box", "write_file", `{"file_path":"counter","content":"n=0."}`)
	const each = 100
	var outs []*bufio.Scanner
	for range 2 {
		_, out := h.helper("count", "box", fmt.Sprint(each))
		outs = append(outs, out)
	}
	for _, out := range outs {
		require.True(t, out.Scan())
		require.Equal(t, fmt.Sprint(each), out.Text())
	}
	assert.Contains(t, h.do("call", "box", "read_file", `{"file_path":"counter"}`), fmt.Sprintf("n=%d.", 2*each))
	h.do("session", "rm", "box")
	h.requireNothing()
}

func TestFault_F21_TenCreationsOfOneName(t *testing.T) {
	h := newHome(t)
	var wg sync.WaitGroup
	codes := make([]int, 10)
	for i := range codes {
		wg.Go(func() {
			cmd := h.command("session", "create", "one", "--json")
			out, _ := cmd.CombinedOutput()
			if codes[i] = cmd.ProcessState.ExitCode(); codes[i] != 0 {
				assert.Contains(t, string(out), `"exists"`)
			}
		})
	}
	wg.Wait()
	made := 0
	for _, code := range codes {
		if code == 0 {
			made++
		}
	}
	assert.Equal(t, 1, made)
	h.do("exec", "one", "--", "true")
	assert.Equal(t, 1, h.containers())
	h.do("session", "rm", "one")
	h.requireNothing()
}

func TestFault_F25_TheHostWasRebooted(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box", "--ttl", "87600h")
	h.do("exec", "box", "--", "sh", "-c", "echo kept > f")
	m := h.manager()
	killHolder(t, "box", h)
	require.NoError(t, m.Backend().Remove(t.Context(), "box"))
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	path := filepath.Join(h.cache, "sessions/box/session.json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	old := strings.ReplaceAll(string(raw), strings.TrimSpace(string(boot)), "11111111-2222-3333-4444-555555555555")
	require.NotEqual(t, string(raw), old)
	require.NoError(t, os.WriteFile(path, []byte(old), 0o600))

	h.do("prune")
	assert.Equal(t, []string{"box"}, h.sessions())
	assert.Contains(t, h.do("session", "list"), "box")
	assert.Equal(t, "kept\n", h.do("exec", "box", "--", "cat", "f"))
	h.do("session", "rm", "box")
	h.requireNothing()
}

// killHolder kills the process that holds a session.
func killHolder(t *testing.T, session string, h *home) {
	t.Helper()
	killProcess(t, holderOf(t, session, h))
}

// killProcess kills a process and waits until it is dead.
func killProcess(t *testing.T, pid int) {
	t.Helper()
	kill(t, pid, syscall.SIGKILL)
	require.Eventually(t, func() bool { return isZombie(fmt.Sprintf("/proc/%d", pid)) }, 30*time.Second, 5*time.Millisecond)
}

// holderOf waits until only one process holds a session: if clients start several at once, all but one end by
// themselves.
func holderOf(t *testing.T, session string, h *home) int {
	t.Helper()
	var pids []int
	require.Eventually(t, func() bool { pids = holders(t, session, h); return len(pids) == 1 }, 30*time.Second, 5*time.Millisecond, "who holds %s", session)
	return pids[0]
}

// isZombie reports whether a process is a zombie or gone. Its first thread may be a zombie while others still end, and
// only the last one closes its descriptors.
func isZombie(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return true
	}
	threads, _ := os.ReadDir(dir + "/task")
	return strings.Contains(string(stat), ") Z ") && len(threads) <= 1
}

func TestFault_F26_ConmonIsKilled(t *testing.T) {
	s := open(t, nil)
	output(t, s, "echo kept > f")
	kill(t, inspected(t, env.manager, s.ID(), "ConmonPid"), syscall.SIGKILL)
	assert.Equal(t, "kept\n", recovered(t, s, "cat f"))
}

func TestFault_F42_TheLogIsCut(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("call", "box", "write_file", `{"file_path":"f","content":"x"}`)
	h.do("call", "box", "ls")
	path := filepath.Join(h.cache, "sessions/box/log.jsonl")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-20))
	out, _, code := command(t, h.cache, "log", "verify", "box")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "log.jsonl:2: cut")
	h.do("call", "box", "ls")
	out, _, _ = command(t, h.cache, "log", "verify", "box")
	assert.Contains(t, out, "log.jsonl:2: cut")
	assert.NotContains(t, out, "log.jsonl:3", "the next record is whole")
	h.do("session", "rm", "box")
}

func TestFault_F37_LimitsThatTheHostCantEnforceAreSaid(t *testing.T) {
	s := open(t, nil)
	var unheld []string
	for name, l := range enforced(t, s) {
		if !l.Enforced {
			unheld = append(unheld, name)
			assert.Contains(t, l.By, "nothing", name)
		}
	}
	strict := open(t, &wisbox.SessionOptions{Strict: true})
	_, err := try(t, strict, "shell_execute", args{"script": "true"})
	if gaps := gapsOf(t, s); len(unheld) == 0 && (gaps == "" || env.isolation == sandbox.IsolationGVisor) { // its note is not a limit
		assert.NoError(t, err)
		return
	}
	assert.Equal(t, tool.Unavailable, kind(err))
	for _, name := range unheld {
		assert.ErrorContains(t, err, name)
	}
}

func TestUseIsNotedWhileASessionIsOpen(t *testing.T) {
	h := newHome(t)
	m := h.manager()
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Idle: time.Hour})
	require.NoError(t, err)
	before, err := m.List(t.Context())
	require.NoError(t, err)
	call(t, s, "write_file", args{"file_path": "f", "content": "x"})
	after, err := m.List(t.Context())
	require.NoError(t, err)
	assert.Greater(t, after[0].State.LastUsed.Boot, before[0].State.LastUsed.Boot, "a killed owner must not make it look unused")
	require.NoError(t, s.Close(t.Context()))
	h.do("session", "rm", "box")
}
