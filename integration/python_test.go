package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// An evaluation that breaks its interpreter has a result, and the next call of either kind is right. Evaluations that
// end at a limit are tested here, since the Host backend of the unit tests has no limits.
func TestEvaluationsEndAtTheirLimitsAndTheNextIsRight(t *testing.T) {
	hosttest.Slow(t)
	most := sandbox.Limits{Memory: 192 << 20, PIDs: 64}
	if env.isolation == sandbox.IsolationGVisor {
		most.PIDs = 256 // its own threads count
	}
	s := open(t, &wisbox.SessionOptions{Limits: most, MaxEvalTimeout: time.Minute})
	limits := enforced(t, s)
	for _, c := range []struct {
		name, limit, code string // limit is the limit that ends it, if nothing else does
		statuses          []string
		stdout            string
	}{
		{"a crash", "", "import ctypes\nctypes.string_at(0)", []string{"signaled"}, ""},
		{"memory", "memory", "x = []\nwhile True: x.append(b'x' * (1 << 20))", []string{"oom_killed", "exception"}, ""},
		{"recursion without a limit", "memory", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", []string{"oom_killed", "signaled", "exception", "timed_out"}, ""},
		{"forks", "pids", "import os\nfor _ in range(200): os.fork() or os._exit(0)", []string{"pids_limit", "exception"}, ""},
		{"a value of 2 GB", "memory", "x = 'a' * (1 << 31)\nfor i in range(0, len(x), 4096): pass\nx", []string{"oom_killed", "exception"}, ""},
		{"a display of 2 GB", "memory", "class H:\n def _repr_html_(s): return 'a' * (1 << 31)\ndisplay(H())\n1", []string{"oom_killed", "exited"}, ""},
		{"a command's output without end", "memory", "x = !yes", []string{"oom_killed", "exception", "timed_out"}, ""},
		{"1 GB of output", "", "import sys\nfor _ in range(1024): n = sys.stdout.write('x' * (1 << 20))", []string{"exited", "timed_out"}, strings.Repeat("x", 4093) + "..."},
	} {
		if c.limit != "" && !limits[c.limit].Enforced {
			t.Logf("%s is not enforced on this host, and wisbox says so", c.limit)
			continue
		}
		for _, state := range []string{"fresh", "kept"} {
			t.Run(c.name+" "+state, func(t *testing.T) {
				request := args{"code": c.code, "state": state}
				if !slices.Contains(c.statuses, "timed_out") { // it must end by itself, however slow the machine is
					request["timeout"] = 60
				}
				resp := call(t, s, "evaluate_python", request)
				if c.limit == "" || env.isolation != sandbox.IsolationGVisor { // gVisor's limits end the sandbox, or are weaker
					assert.Contains(t, c.statuses, resp.str("status"), "%.500v", resp)
				}
				assert.Equal(t, c.stdout, resp.str("stdout"))
				for _, next := range []string{"fresh", "kept"} {
					again := call(t, s, "evaluate_python", args{"code": "1 + 1", "state": next, "timeout": 60})
					assert.Equal(t, "2", again.str("value_repr"), "%v", again)
				}
			})
		}
	}
}

// A fresh call's changes to its process don't reach the next call, which is a fork of the
// same warm interpreter.
func TestNothingOfAFreshCallReachesTheNext(t *testing.T) {
	s := open(t, nil)
	const state = `
import builtins, gc, json, os, random, resource, signal, sys, threading, zlib
short = lambda names: zlib.crc32(repr(sorted(names)).encode())
seen = [sorted(globals()), short(sys.modules), short(vars(builtins)), type(builtins.print).__name__, hasattr(json, "mine"), os.getcwd(), dict(os.environ),
    sorted(os.listdir("/proc/self/fd")), threading.active_count(), sorted(os.listdir("/proc/self/task"))[1:], [type(signal.getsignal(n)).__name__ + str(signal.getsignal(n))[:1] for n in range(1, 32)],
    os.umask(0o22), sys.path[:], sys.argv[:], sys.getrecursionlimit(), resource.getrlimit(resource.RLIMIT_NOFILE), gc.isenabled(), sys.gettrace() is None, signal.getitimer(0), os.getpriority(0, 0)]
`
	const spoil = `
x = 1
builtins.print = json.mine = 2
os.chdir("/tmp"); os.environ["Q"] = "1"; os.umask(0); os.nice(1)
kept = open("/workspace/f", "w"), os.pipe(), threading.Thread(target=threading.Event().wait, daemon=True).start()
for n in (10, 15): signal.signal(n, signal.SIG_IGN)
signal.setitimer(0, 60)
sys.path.append("/x"); sys.argv.append("y"); sys.setrecursionlimit(99); sys.settrace(lambda *a: None); gc.disable()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); random.seed(1); sys.modules["mine"] = json; import decimal
`
	look := func(more string) string {
		resp := call(t, s, "evaluate_python", args{"code": state + more + "\njson.dumps(seen)"})
		require.Equal(t, "exited", resp.str("status"), "%v", resp)
		require.False(t, strings.HasSuffix(resp.str("value_repr"), "..."), "cut: %v", resp)
		return resp.str("value_repr")
	}
	before := look("")
	for range 3 { // more than the processes that are ready
		assert.Equal(t, before, look(spoil))
	}
	assert.Equal(t, before, look(""))
	seeded := "import random\nrandom.random()"
	first := call(t, s, "evaluate_python", args{"code": seeded}).str("value_repr")
	assert.NotEqual(t, first, call(t, s, "evaluate_python", args{"code": seeded}).str("value_repr"))
}

// footprint is the resource usage of a session at one moment.
type footprint struct {
	processes, descriptors int
	hidden                 bool   // some processes are a subordinate user's: their descriptors aren't counted
	agent                  string // its directory in /proc
}

// footprintOf counts the processes of the session's container, their descriptors and ours. The agent is the oldest
// Python process. Its pid needn't be the lowest, since the kernel starts again after pid_max.
func footprintOf(t *testing.T, object string) footprint {
	t.Helper()
	var f footprint
	oldest := uint64(math.MaxUint64)
	for _, dir := range containerDirs(object) {
		comm, err := os.ReadFile(dir + "/comm")
		if err != nil {
			continue // it has just ended
		}
		fds, err := os.ReadDir(dir + "/fd")
		if errors.Is(err, fs.ErrPermission) {
			f.hidden = true
		} else if err != nil {
			continue
		}
		f.processes++
		f.descriptors += len(fds)
		if began, err := startOf(dir); err == nil && string(comm) == "python3\n" && began < oldest {
			f.agent, oldest = dir, began
		}
	}
	own, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	f.descriptors += len(own)
	return f
}

// containerDirs returns the directories in /proc of a container's processes: of each conmon that names it, and of its
// descendants. The cgroup isn't enough: on cgroup v1 rootless Podman creates none.
func containerDirs(object string) (found []string) {
	children := map[int][]string{}
	for _, dir := range processDirs() {
		parent, err := parentOf(dir)
		if err != nil {
			continue // it has just ended
		}
		children[parent] = append(children[parent], dir)
		line, err := os.ReadFile(dir + "/cmdline")
		if program, rest, _ := strings.Cut(string(line), "\x00"); err == nil && filepath.Base(program) == "conmon" && strings.Contains(rest, object) {
			found = append(found, dir)
		}
	}
	for i := 0; i < len(found); i++ { // it grows
		found = append(found, children[pidOf(found[i])]...)
	}
	return found
}

// A thousand fresh calls leave memory, processes and descriptors where they were,
// in the container and here.
func TestAThousandFreshCallsLeaveNothing(t *testing.T) {
	hosttest.Slow(t)
	s := open(t, nil)
	calls := func(n int) {
		for range n {
			require.Equal(t, "2", call(t, s, "evaluate_python", args{"code": "1+1"}).str("value_repr"))
		}
	}
	calls(50)
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	before, heap, goroutines := footprintOf(t, in.Sandbox.Object), heapInUse(), runtime.NumGoroutine()
	require.NotEmpty(t, before.agent, "the agent is not found: %+v", before)
	var memory int64
	if before.hidden {
		t.Log("the agent is a subordinate user's: its memory and descriptors are hidden from us; root's run of this test looks at them")
	} else {
		memory = anonymous(t, before.agent)
	}
	calls(1000)
	var after footprint
	assert.Eventually(t, func() bool { // spare processes come and go
		after = footprintOf(t, in.Sandbox.Object)
		return after.processes <= before.processes && after.descriptors <= before.descriptors
	}, 30*time.Second, 250*time.Millisecond)
	assert.Equal(t, before.agent, after.agent, "the agent was replaced")
	if !before.hidden {
		assert.Less(t, anonymous(t, before.agent), memory+1<<20, "bytes of the agent; before %+v, after %+v", before, after)
	}
	assert.Eventually(t, func() bool { // goroutines and buffers that are just ending take some
		return heapInUse() < heap+2<<20 && runtime.NumGoroutine() <= goroutines+3 // two, and this one
	}, 30*time.Second, 250*time.Millisecond, "our heap was %d bytes, and %d goroutines", heap, goroutines)
}

// startOf returns the start time of a process, in ticks since the machine's start: field 22 of proc_pid_stat(5),
// counted from the state, which is field 3.
func startOf(dir string) (uint64, error) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return 0, fmt.Errorf("%s/stat has %d fields after the name", dir, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func pidOf(dir string) int {
	pid, _ := strconv.Atoi(filepath.Base(dir))
	return pid
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// anonymous returns the anonymous memory of the process, in bytes. Memory that it shares with its forks counts in full,
// so their number doesn't matter; the proportional size (Pss) would grow as they end.
func anonymous(t *testing.T, dir string) int64 {
	t.Helper()
	rollup, err := os.ReadFile(dir + "/smaps_rollup")
	require.NoError(t, err)
	for line := range strings.Lines(string(rollup)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Anonymous:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	require.Fail(t, "no Anonymous in smaps_rollup", "%s", rollup)
	return 0
}

// A limit that a kept interpreter has reached once doesn't end it later.
func TestAKeptInterpreterIsEndedByALimitOfItsOwnCallOnly(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Limits: sandbox.Limits{PIDs: 64}})
	if !enforced(t, s)["pids"].Enforced || env.isolation == sandbox.IsolationGVisor {
		t.Log("pids is not enforced on this host by what counts, and wisbox says so")
		return
	}
	const threads = `
import os, threading
done = threading.Event()
try:
    for _ in range(200): threading.Thread(target=done.wait, daemon=True).start()
except RuntimeError:
    %s
`
	kept := func(code string) answer { return call(t, s, "evaluate_python", args{"code": code, "state": "kept"}) }
	end := func() answer { return kept("import os; os._exit(3)") }

	require.Equal(t, "exited", kept(fmt.Sprintf(threads, "done.set()")).str("status"))
	assert.Equal(t, "exited", end().str("status"), "a limit of an earlier call")

	kept("1")
	require.Equal(t, "pids_limit", call(t, s, "evaluate_python", args{"code": fmt.Sprintf(threads, "os._exit(4)")}).str("status"))
	assert.Equal(t, "exited", end().str("status"), "a limit of another program")

	assert.Equal(t, "pids_limit", kept(fmt.Sprintf(threads, "os._exit(4)")).str("status"))
}
