package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// attack starts a program and returns a function that stops it. The program calls up() once it is attacking.
func attack(t *testing.T, s *wisbox.Session, python string) (stop func()) {
	t.Helper()
	const up = "def up():\n    open('up', 'w').close()\n"
	call(t, s, "write_file", args{"file_path": "attack.py", "content": up + python})
	id := call(t, s, "process_start", args{"script": "exec python3 -S attack.py"}).str("process_id")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.WorkspacePath(), "up"))
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	running := func() bool { return strings.Contains(fmt.Sprint(call(t, s, "process_list", args{})), "running") }
	return func() {
		require.True(t, running(), "the attack had ended by itself")
		call(t, s, "process_signal", args{"process_id": id, "signal": "KILL"})
		require.Eventually(t, func() bool { return !running() }, 30*time.Second, 5*time.Millisecond, "the attack goes on")
	}
}

// TestProgramsCanNotTrace: processes of uid 0 can't be traced, read or written, and the seccomp profile also applies to
// a program's own children.
func TestProgramsCanNotTrace(t *testing.T) {
	s := open(t, nil)
	call(t, s, "evaluate_python", args{"code": "1"}) // starts the warm interpreter
	call(t, s, "write_file", args{"file_path": "trace.py", "content": `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class IOVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def uid(pid):
    try:
        return int(open("/proc/%d/status" % pid).read().split("Uid:")[1].split()[0])
    except OSError:
        return -1 # it has just ended
own = os.fork()
if own == 0:
    os.read(os.pipe()[0], 1)
pids = [own] + [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if uid(p) == 0]
print(len(pids) > 4)
for pid in pids:
    for request in (16, 0x4206):
        if libc.ptrace(request, pid, 0, 0) == 0:
            print("traced", pid)
    buf = ctypes.create_string_buffer(8)
    vec = IOVec(ctypes.addressof(buf), 8)
    for name in ("process_vm_readv", "process_vm_writev"):
        if getattr(libc, name)(pid, ctypes.byref(vec), 1, ctypes.byref(vec), 1, 0) > 0:
            print(name, pid)
PIDFD_OPEN, PIDFD_GETFD = 434, 438 # how the host itself comes to the agent's socket
for pid in pids[1:]:
    process = libc.syscall(PIDFD_OPEN, pid, 0)
    for fd in range(16):
        if process >= 0 and libc.syscall(PIDFD_GETFD, process, fd, 0) >= 0:
            print("took", fd, pid)
    for name in ("mem", "maps", "environ", "fd/0", "fd/1", "auxv", "syscall"):
        for flags in (os.O_RDONLY, os.O_WRONLY):
            try:
                os.open("/proc/%d/%s" % (pid, name), flags)
                print("opened", name, pid)
            except OSError:
                pass
os.kill(own, 9)
`})
	require.Equal(t, "True\n", output(t, s, "python3 -S trace.py"))
}

// TestClosedStreamsEndNoCall: a call waits for a program that closes its streams, and doesn't wait for a child that
// inherits them.
func TestClosedStreamsEndNoCall(t *testing.T) {
	s := open(t, nil)
	a := script(t, s, "echo out; exec <&- >&- 2>&-; sleep 0.3; touch done; exit 3")
	require.Equal(t, "out\n", a.str("stdout"))
	require.Equal(t, 3, a.num("exit_code"), "%v", a)
	require.FileExists(t, filepath.Join(s.WorkspacePath(), "done"))
	require.Equal(t, "left\n", output(t, s, "(setsid nohup sleep 600 &); echo left"))
	require.Equal(t, "0\n", output(t, s, "ps -eo args | grep -c '[s]leep 600'; true"))
}

// TestSpinningProgramsHoldNoTimeout, with the maximum number of processes.
func TestSpinningProgramsHoldNoTimeout(t *testing.T) {
	s := open(t, nil)
	a := call(t, s, "shell_execute", args{"timeout": 1, "commands": []string{"python3", "-S", "-c",
		"import os\nfor i in range(200):\n if os.fork() == 0: break\nwhile True: pass"}})
	require.Equal(t, "timed_out", a.str("status"), "%v", a)
	require.Equal(t, "hi\n", output(t, s, "echo hi"))
}

// TestMuchOutputCostsTheHostNoMemory: 1 GiB, and endless output.
func TestMuchOutputCostsTheHostNoMemory(t *testing.T) {
	s := open(t, nil)
	output(t, s, "head -c 1000000 /dev/zero | tr '\\0' x") // allocate what is allocated only once
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	a := call(t, s, "shell_execute", args{"script": "head -c 1G /dev/zero", "timeout": 600}) // with gVisor, a relay carries the output
	require.EqualValues(t, 1<<30, int64(a.num("stdout_dropped"))+int64(32<<10), "%v", a.str("status"))
	require.NotEmpty(t, a.str("output_id"))
	for timeout := 2; ; timeout *= 2 { // the amount depends on the machine's speed
		a = call(t, s, "shell_execute", args{"commands": []string{"yes"}, "timeout": timeout})
		require.Equal(t, "timed_out", a.str("status"))
		if a.num("stdout_dropped") > 16<<20 {
			break
		}
		require.Less(t, timeout, 60, "%v", a)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.Sys)-int64(before.Sys), int64(64<<20), "a heap grows by 4 MiB, and to twice what is in use")
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(8<<20))
}

// TestFreshEvaluationsStayRightUnderAttack: a program that writes to any memory and kills any process that it can
// doesn't falsify a result: an evaluation is right, or reports that it was killed.
func TestFreshEvaluationsStayRightUnderAttack(t *testing.T) {
	for name, attacker := range map[string]string{
		"memory": `
import os
me = os.getpid()
up()
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != me:
            try:
                ranges = [l.split() for l in open("/proc/%s/maps" % name) if " rw-p " in l]
                with open("/proc/%s/mem" % name, "r+b", 0) as mem:
                    for r in ranges:
                        mem.seek(int(r[0].split("-")[0], 16))
                        mem.write(b"poison" * 600)
            except (OSError, ValueError):
                pass
`,
		"kill": `
import os
keep = (os.getpid(), 0) # gVisor lists an exiting process as 0, and a signal to 0 goes to the attacker's own group
up()
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in keep:
            try:
                os.kill(int(name), 9)
            except OSError:
                pass
`,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, nil)
			stop := attack(t, s, attacker)
			right := 0
			for range 30 {
				a, err := try(t, s, "evaluate_python", args{"code": "sum(range(1000))"})
				require.NoError(t, err)
				if a.str("status") == "exited" {
					require.Equal(t, "499500", a.str("value_repr"), "%v", a)
					right++
				}
			}
			t.Logf("%d of 30 were not killed", right)
			if name == "memory" {
				require.Equal(t, 30, right)
			}
			stop()
			require.Equal(t, "499500", call(t, s, "evaluate_python", args{"code": "sum(range(1000))"}).str("value_repr"))
			require.Equal(t, "hi\n", output(t, s, "echo hi"))
		})
	}
}

// TestCallsGoOnBesideAGreedyProgram: a program that fills memory or the process table may make others fail, with an
// error; the sandbox survives.
func TestCallsGoOnBesideAGreedyProgram(t *testing.T) {
	hosttest.Slow(t)
	for name, greedy := range map[string]string{
		"memory": `
import os
up()
while True:
    if os.fork() == 0:
        held = []
        while True: held.append(bytearray(16 << 20))
    os.wait()
`,
		"processes": `
import os
up()
while True:
    try: os.fork()
    except OSError: pass
`,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, &wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 256 << 20, PIDs: 64}})
			stop := attack(t, s, greedy)
			for range 10 {
				a := call(t, s, "shell_execute", args{"commands": []string{"/bin/echo hi"}, "timeout": 20})
				require.Contains(t, []string{"exited", "signaled", "oom_killed", "pids_limit", "timed_out"}, a.str("status"), "%v", a)
				if a.str("status") == "exited" && a.num("exit_code") == 0 {
					require.Equal(t, "hi\n", a.str("stdout"))
				}
			}
			stop()
			require.Equal(t, "hi\n", output(t, s, "echo hi"))
		})
	}
}
