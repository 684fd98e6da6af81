//go:build integration

package podman

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

func (h *host) post(path string) {
	h.t.Helper()
	require.NoError(h.t, h.do(h.t.Context(), request{method: http.MethodPost, path: path}))
}

// sleeping starts a long program and returns once it runs.
func sleeping(t *testing.T, s *Sandbox) <-chan sandbox.Result {
	t.Helper()
	got := make(chan sandbox.Result, 1)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	go func() {
		defer w.Close()
		result, err := s.Run(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo up; exec sleep 300"}, Stdout: w})
		if err != nil {
			t.Error(err)
		}
		got <- result
	}()
	_, err = r.Read(make([]byte, 10))
	require.NoError(t, err)
	return got
}

// ended waits for a program that something else ended.
func ended(t *testing.T, got <-chan sandbox.Result) sandbox.Result {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(time.Minute):
		t.Fatal("the call in flight did not return")
		return sandbox.Result{}
	}
}

func TestTheCallInFlightIsLostWhenTheContainerGoes(t *testing.T) {
	for name, end := range map[string]func(*host, *Sandbox){
		"removed": func(h *host, s *Sandbox) { require.NoError(h.t, h.Remove(h.t.Context(), s.spec.ID)) },
		"killed":  func(h *host, s *Sandbox) { h.post(containerPath(s.name, "/kill?signal=KILL")) },
		"stopped": func(h *host, s *Sandbox) { h.post(containerPath(s.name, "/stop?t=0")) },
		"left by its agent": func(h *host, s *Sandbox) {
			require.NoError(h.t, syscall.Kill(agentPID(h.t, s), syscall.SIGKILL))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			spec := h.spec("gone")
			s := h.create(spec)
			_, result := sh(t, s, "echo kept >f")
			require.Equal(t, 0, result.ExitCode)
			got := sleeping(t, s)
			end(h, s)
			require.Equal(t, sandbox.StatusSandboxLost, ended(t, got).Status)
			_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
			require.ErrorIs(t, err, sandbox.ErrLost)
			again := h.create(spec)
			out, _ := sh(t, again, "cat f")
			require.Equal(t, "kept\n", out)
			require.Len(t, mustList(t, h), 1)
		})
	}
}

func mustList(t *testing.T, h *host) []sandbox.Info {
	t.Helper()
	found, err := h.List(t.Context())
	require.NoError(t, err)
	return found
}

// TestALostConnectionIsReplaced: the programs of the lost one are gone before the next call.
func TestALostConnectionIsReplaced(t *testing.T) {
	h := newHost(t, nil)
	s := h.create(h.spec("agent"))
	got := sleeping(t, s)
	conn, err := s.agent.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, sandbox.StatusSandboxLost, ended(t, got).Status)
	out, result := sh(t, s, "ps -eo args | grep -c '[s]leep 300'; true")
	require.Equal(t, 0, result.ExitCode)
	require.Equal(t, "0\n", out)
}

// TestAKilledMonitorCostsItsOwnCallOnly: the agent has a monitor process for each call.
func TestAKilledMonitorCostsItsOwnCallOnly(t *testing.T) {
	h := newHost(t, nil)
	s := h.create(h.spec("monitor"))
	one := sleeping(t, s)
	pid := agentPID(t, s)
	var killed []int
	for _, monitor := range childrenOf(t, pid) {
		if len(childrenOf(t, monitor)) > 0 {
			killed = append(killed, monitor)
		}
	}
	require.Len(t, killed, 1)
	other := sleeping(t, s)
	require.NoError(t, syscall.Kill(killed[0], syscall.SIGKILL))
	got := ended(t, one)
	require.Equal(t, sandbox.StatusSignaled, got.Status)
	require.Equal(t, "KILL", got.Signal)
	out, _ := sh(t, s, "ps -eo args | grep -c '[s]leep 300'")
	require.Equal(t, "1\n", out, "the other call goes on")
	require.Equal(t, pid, agentPID(t, s))
	require.NoError(t, s.EndAll(t.Context(), sandbox.StatusDiskLimit))
	require.Equal(t, sandbox.StatusDiskLimit, ended(t, other).Status)
}

// childrenOf returns the host's IDs of a process's children.
func childrenOf(t *testing.T, pid int) (found []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // any thread may have started them
	require.NoError(t, err)
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			require.NoError(t, err)
			found = append(found, child)
		}
	}
	return found
}

// agentPID returns the agent's process ID on the host.
func agentPID(t testing.TB, s *Sandbox) int {
	t.Helper()
	data, err := s.b.inspect(t.Context(), s.name)
	require.NoError(t, err)
	return data.State.Pid
}

func TestAPausedContainerIsRemovedAndRecovered(t *testing.T) {
	h := newHost(t, nil)
	if h.eng.Load().info.Host.Security.Rootless && h.eng.Load().info.Host.CgroupsVersion == "v1" {
		t.Skip("rootless Podman can't pause on cgroup v1; root's run of this test does")
	}
	s := h.create(h.spec("paused"))
	h.post(containerPath(s.name, "/pause"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	result, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}})
	t.Log(result, err, time.Since(start))
	require.Less(t, time.Since(start), 30*time.Second)
	out, _ := sh(t, s, "echo back")
	require.Equal(t, "back\n", out)
	h.post(containerPath(s.name, "/pause"))
	require.NoError(t, h.Remove(t.Context(), "paused"))
	require.Empty(t, mustList(t, h))
}

func TestTheServiceIsStartedAgainWhenItWasKilled(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "wp")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	h := newHost(t, &Options{RuntimeDir: filepath.Join(dir, "r")})
	s := h.create(h.spec("svc"))
	got := sleeping(t, s)
	require.NoError(t, syscall.Kill(servicePID(t, dir), syscall.SIGKILL))
	start := time.Now()
	require.NoError(t, s.EndAll(t.Context(), sandbox.StatusDiskLimit)) // the agent needs no service
	require.Equal(t, sandbox.StatusDiskLimit, ended(t, got).Status)
	out, _ := sh(t, s, "ps -eo args | grep -c '[s]leep 300'; true")
	require.Equal(t, "0\n", out)
	h.create(h.spec("again"))
	t.Log("the first use of the service after its end", time.Since(start))
	require.NoError(t, syscall.Kill(servicePID(t, dir), syscall.SIGSTOP))
	start = time.Now()
	_, err = h.Create(t.Context(), h.spec("hung"))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Less(t, time.Since(start), 30*time.Second)
	require.NoError(t, syscall.Kill(servicePID(t, dir), syscall.SIGCONT))
	h.create(h.spec("hung"))
}

func servicePID(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "r/podman-*/service.json"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	data, err := os.ReadFile(found[0])
	require.NoError(t, err)
	var p pointer
	require.NoError(t, json.Unmarshal(data, &p))
	return p.PID
}

func TestStrictRefusesWhatTheHostDoesNotEnforce(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("strict")
	spec.Strict = true
	_, err := h.Create(t.Context(), spec)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "counted by user id", "other sandboxes use these ids")
	require.Empty(t, mustList(t, h))
	host := h.eng.Load().info.Host
	if host.Security.Rootless {
		if host.CgroupsVersion == "v1" {
			require.ErrorContains(t, err, "memory")
		}
		return
	}
	spec.Owner, err = h.OwnRange(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, os.Chown(spec.Workspace, spec.Owner.UID, spec.Owner.GID))
	_, err = h.Create(t.Context(), spec)
	require.NoError(t, err)
}

func TestManyCreatesAtOnce(t *testing.T) {
	h := newHost(t, nil)
	var all sync.WaitGroup
	for i := range 10 {
		spec := h.spec(fmt.Sprintf("many-%d", i))
		all.Go(func() {
			s, err := h.Create(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Empty(t, mustList(t, h))
}

// TestSandboxesTakeNoKeys: all containers run as one user, to whom the kernel gives 200 keys, and a container with its
// own keyrings takes two.
func TestSandboxesTakeNoKeys(t *testing.T) {
	h := newHost(t, nil)
	first := h.create(h.spec("key-0"))
	uid := rootOf(t, first)
	before := keysOf(t, uid)
	for i := range 4 {
		s := h.create(h.spec(fmt.Sprintf("key-%d", i+1)))
		require.Equal(t, uid, rootOf(t, s))
	}
	require.LessOrEqual(t, keysOf(t, uid), before)
}

// rootOf returns the host user that is root in a sandbox.
func rootOf(t *testing.T, s *Sandbox) string {
	t.Helper()
	data, err := s.b.inspect(t.Context(), s.name)
	require.NoError(t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", data.State.Pid))
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^Uid:\s+(\d+)`).FindStringSubmatch(string(status))[1]
}

// keysOf returns how many keys a user has, from /proc/key-users.
func keysOf(t *testing.T, uid string) int {
	t.Helper()
	table, err := os.ReadFile("/proc/key-users")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\s*` + uid + `:.* (\d+)/\d+ \d+/\d+$`).FindStringSubmatch(string(table))
	if row == nil {
		return 0
	}
	n, err := strconv.Atoi(row[1])
	require.NoError(t, err)
	return n
}

func TestOneIDMadeTenTimesAtOnce(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("same")
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 10 {
		all.Go(func() {
			_, err := h.Create(t.Context(), spec)
			if err != nil {
				require.ErrorIs(t, err, sandbox.ErrExists)
				return
			}
			mu.Lock()
			made++
			mu.Unlock()
		})
	}
	all.Wait()
	require.Equal(t, 1, made)
	require.Len(t, mustList(t, h), 1)
}

func TestACancelledCreateLeavesNoContainer(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("cancelled")
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*24*time.Millisecond)
		s, err := h.Create(ctx, spec)
		cancel()
		if err == nil {
			require.NoError(t, s.Close(t.Context()))
		}
		require.Empty(t, mustList(t, h))
	}
}
