package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// enforced returns the state of a session's limits after its first program.
func enforced(t *testing.T, s *wisbox.Session) map[string]sandbox.LimitState {
	t.Helper()
	output(t, s, "true")
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	require.NotNil(t, in.Sandbox)
	states := map[string]sandbox.LimitState{}
	for _, l := range in.Sandbox.Limits {
		states[l.Name] = l
	}
	for _, name := range []string{"cpus", "memory", "pids", "tmp", "nofile", "fsize"} {
		require.Contains(t, states, name)
		require.NotEmpty(t, states[name].By)
	}
	return states
}

// TestTheLeastLimitOfProcessesHasRoomForPrograms: wisbox's own processes count too.
func TestTheLeastLimitOfProcessesHasRoomForPrograms(t *testing.T) {
	if env.isolation == sandbox.IsolationGVisor {
		t.Skip("gVisor's own threads take all of so few; docs/gvisor.md says how many fit")
	}
	s := open(t, &wisbox.SessionOptions{Limits: sandbox.Limits{PIDs: 32}})
	for range 5 {
		require.Equal(t, "0\n", output(t, s, "ls | wc -l"))
	}
}

// TestManyCallsAtOnceTakeTurns: running all calls at once would need more processes than the limit.
func TestManyCallsAtOnceTakeTurns(t *testing.T) {
	s := open(t, nil)
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			a, err := try(t, s, "shell_execute", args{"commands": []string{"echo", strconv.Itoa(i)}, "timeout": 60})
			if assert.NoError(t, err) {
				assert.Equal(t, strconv.Itoa(i)+"\n", a.str("stdout"), "%v", a)
			}
		})
	}
	calls.Wait()
}

// unlessUnenforced runs the proof of an enforced limit. It checks that another limit is reported, and refused with
// Strict.
func unlessUnenforced(t *testing.T, opts wisbox.SessionOptions, limit string, proof func(*testing.T, *wisbox.Session)) {
	t.Helper()
	s := open(t, &opts)
	if enforced(t, s)[limit].Enforced {
		proof(t, s)
		return
	}
	t.Logf("%s is not enforced on this host, and wisbox says so", limit)
	strict := opts
	strict.Strict = true
	refused := open(t, &strict)
	_, err := try(t, refused, "shell_execute", args{"script": "true"})
	assert.Equal(t, "unavailable", string(kind(err)), "strict must refuse: %v", err)
	assert.ErrorContains(t, err, limit)
}

func TestMemoryOverTheLimitIsKilled(t *testing.T) {
	opts := wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 128 << 20}}
	unlessUnenforced(t, opts, "memory", func(t *testing.T, s *wisbox.Session) {
		a := call(t, s, "shell_execute", args{"commands": []string{"python3", "-c", "x=[]\nwhile True: x.append(bytearray(10<<20))"}})
		assert.Equal(t, "oom_killed", a.str("status"), "%v", a)
		assert.Equal(t, 137, a.num("exit_code"))
		assert.Equal(t, "ok\n", output(t, s, "echo ok"), "the session goes on")
	})
}

func TestABusyLoopGetsItsProcessorsAndNoMore(t *testing.T) {
	opts := wisbox.SessionOptions{Limits: sandbox.Limits{CPUs: 0.5}}
	unlessUnenforced(t, opts, "cpus", func(t *testing.T, s *wisbox.Session) {
		out := output(t, s, `python3 - <<'P'
import os, time
kids = []
began = time.monotonic()
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        end = time.monotonic() + 4
        while time.monotonic() < end: pass
        os._exit(0)
    kids.append(pid)
for pid in kids: os.waitpid(pid, 0)
t = os.times()
print((t.children_user + t.children_system) / (time.monotonic() - began))
P`)
		share, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		require.NoError(t, err)
		assert.Less(t, share, 0.75, "three busy loops under a limit of half a processor")
	})
}

func TestAForkStormStopsAtTheLimitOfProcesses(t *testing.T) {
	opts := wisbox.SessionOptions{Limits: sandbox.Limits{PIDs: 64}}
	unlessUnenforced(t, opts, "pids", func(t *testing.T, s *wisbox.Session) {
		a := call(t, s, "shell_execute", args{"commands": []string{"python3", "-c", `
import os, sys, time
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        n += 1
except OSError as e:
    print(n, flush=True); sys.exit(3)`}})
		assert.Equal(t, "pids_limit", a.str("status"), "%v", a)
		made, err := strconv.Atoi(strings.TrimSpace(a.str("stdout")))
		require.NoError(t, err)
		assert.LessOrEqual(t, made, 64)
		assert.Equal(t, "ok\n", output(t, s, "echo ok"), "the session goes on, its children gone")
	})
}

// TestVerdictsComeFromTheCgroup: a limit is the verdict if the program failed because of it; otherwise it is reported
// in addition.
func TestVerdictsComeFromTheCgroup(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 128 << 20, PIDs: 64}})
	holds := enforced(t, s)
	const eat = "python3 -S -c 'b=[]\nwhile True: b.append(bytearray(16<<20))'"
	for _, c := range []struct{ name, limit, script, status, notice string }{
		{"memory of the program", "memory", "exec " + eat, "oom_killed", "memory limit"},
		{"memory of a child", "memory", eat + "; exit 1", "oom_killed", "memory limit"},
		{"memory of a child that was expected", "memory", eat + "; exit 0", "exited", "memory limit"},
		{"processes", "pids", "for i in $(seq 100); do sleep 5 & done; exit 3", "pids_limit", "process limit"},
		{"file size of a child", "fsize", "ulimit -f 1; head -c 100000 /dev/zero > big", "disk_limit", "size limit"},
		{"file size of the program", "fsize", "ulimit -f 1; exec head -c 100000 /dev/zero > big", "disk_limit", "size limit"},
		{"nothing", "fsize", "exit 1", "exited", ""},
		{"a signal", "fsize", "kill -SEGV $$", "signaled", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !holds[c.limit].Enforced {
				t.Logf("%s is not enforced on this host, and wisbox says so", c.limit)
				return
			}
			a := script(t, s, c.script)
			require.Equal(t, c.status, a.str("status"), "%v", a)
			require.Contains(t, fmt.Sprint(a["notices"]), c.notice)
			require.Positive(t, a.num("max_rss_bytes"), "%v", a)
		})
	}
}

func TestTmpAndSharedMemoryAreBounded(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Limits: sandbox.Limits{Tmp: 8 << 20, Shm: 64 << 20}})
	a := script(t, s, "dd if=/dev/zero of=/tmp/f bs=1M count=20 2>&1; rm -f /tmp/f; dd if=/dev/zero of=/dev/shm/f bs=1M count=100 2>&1; rm -f /dev/shm/f; dd if=/dev/zero of=/run/f bs=1M count=3 2>&1; true")
	assert.Equal(t, 2, strings.Count(a.str("stdout"), "No space left"), "%v", a)
	assert.Regexp(t, `(?i)/run/f.*(permission denied|no space)`, a.str("stdout"))
}

func TestSharedMemoryFollowsTheMemory(t *testing.T) {
	for _, c := range []struct {
		limits sandbox.Limits
		want   string
	}{
		{sandbox.Limits{Memory: 256 << 20}, "65536\n"}, {sandbox.Limits{Memory: 2 << 30}, "524288\n"}, {sandbox.Limits{Memory: 2 << 30, Shm: 1 << 30}, "1048576\n"},
	} {
		s := open(t, &wisbox.SessionOptions{Limits: c.limits})
		assert.Equal(t, c.want, output(t, s, "df -k --output=size /dev/shm | tail -1 | tr -d ' '"), "%+v", c.limits)
	}
}

// TestFilesInMemoryLeaveRoomForPrograms: out-of-memory kills don't free files, so if they could fill the memory, no
// program could run, not even rm.
func TestFilesInMemoryLeaveRoomForPrograms(t *testing.T) {
	opts := wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 64 << 20}}
	unlessUnenforced(t, opts, "memory", func(t *testing.T, s *wisbox.Session) {
		a := script(t, s, "for d in /tmp ~ /dev/shm; do head -c 300M /dev/zero > $d/f; done; ls -l /tmp ~ /dev/shm | grep -c f$")
		assert.Equal(t, "exited", a.str("status"), "%v", a)
		assert.Equal(t, 3, strings.Count(a.str("stderr"), "No space left"), "%v", a)
		assert.Equal(t, "ok\n", output(t, s, "rm /tmp/f ~/f /dev/shm/f; echo ok"))
	})
}

// TestWhatOutlivesAProgramInMemoryLeavesRoomForOthers: empty files, semaphores and shared memory take memory too.
// endsOfGVisor are the possible ends of a program that fills gVisor's memory, see docs/gvisor.md.
var endsOfGVisor = []string{"sandbox_lost", "signaled", "oom_killed", "exited"}

func TestWhatOutlivesAProgramInMemoryLeavesRoomForOthers(t *testing.T) {
	const fill = `
import ctypes, os
libc = ctypes.CDLL(None)
for d in ("/tmp", os.environ["HOME"], "/dev/shm"):
    n = 0
    try:
        while True:
            open("%s/f%d" % (d, n), "w").close()
            n += 1
    except OSError as e:
        print(d, e.strerror)
if open("/proc/sys/kernel/shm_rmid_forced").read() == "1\n": # where the kernel lets it be bounded
    while libc.semget(0, 250, 0o1600) >= 0: pass
    while libc.msgget(0, 0o1600) >= 0: pass
    libc.shmat.restype = ctypes.c_void_p
    for i in range(4):
        ctypes.memset(libc.shmat(libc.shmget(0, ctypes.c_size_t(8 << 20), 0o1600), None, 0), 1, 8 << 20)
`
	opts := wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 128 << 20}}
	unlessUnenforced(t, opts, "memory", func(t *testing.T, s *wisbox.Session) {
		a := call(t, s, "shell_execute", args{"script": "cat > fill.py; python3 fill.py", "stdin": fill, "timeout": 60})
		if env.isolation == sandbox.IsolationGVisor { // gVisor doesn't limit entries: its own memory fills, and the host ends it
			assert.Contains(t, endsOfGVisor, a.str("status"), "%v", a)
			assert.Equal(t, "20971520\n", recovered(t, s, "python3 -c \"print(len(b'x' * (20 << 20)))\""))
			return
		}
		assert.Equal(t, "exited", a.str("status"), "%v", a)
		assert.Equal(t, 3, strings.Count(a.str("stdout"), "No space left"), "%v", a)
		assert.Equal(t, "20971520\n", output(t, s, "python3 -c \"print(len(b'x' * (20 << 20)))\""))
	})
}

func TestLimitsOfOneProcessAreSet(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Limits: sandbox.Limits{NoFile: 256, FileSize: 4 << 20}})
	assert.Equal(t, "256\n0\n", output(t, s, "ulimit -n; ulimit -c"))
	a := script(t, s, "head -c 10000000 /dev/zero > big; wc -c < big")
	assert.Equal(t, "4194304\n", a.str("stdout"), "%v", a)
}
