package sandboxtest

import (
	"slices"

	"github.com/wisbox/wisbox/sandbox"
)

// program is a check's program in the languages of the images: Python, and shell with only busybox's commands.
type program struct{ python, shell string }

// survivor starts a process that ignores signals and holds a lock in the
// workspace, in one of several ways, then ends as its arguments say. The lock shows the host whether the process still
// runs, and a file whether it is ready. In shell the lock is a pipe that the process holds open.
var survivor = program{python: `
import fcntl, os, signal, sys, time
way, end = sys.argv[1:]
r, w = os.pipe()

def survive():
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(s, signal.SIG_IGN)
    lock = open("lock-" + way, "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(w, b"x")
    time.sleep(600)

if os.fork() == 0:
    if way != "child":
        os.setsid()
    if way != "double" or os.fork() == 0:
        survive()
    os._exit(0)
os.read(r, 1)
print("ready", flush=True)
open("said-" + way, "w").close()
if end == "segv":
    os.kill(os.getpid(), signal.SIGSEGV)
if end == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
os._exit(0)
`, shell: `
survive='trap "" TERM INT HUP QUIT PIPE; exec 9<>"lock-$1"; echo x >"up-$1"; exec sleep 600'
rm -f "up-$1" "lock-$1"; mkfifo "up-$1" "lock-$1"
case $1 in
child) sh -c "$survive" sh "$1" & ;;
setsid) setsid sh -c "$survive" sh "$1" & ;;
double) (setsid sh -c "$survive" sh "$1" &) ;;
esac
read x <"up-$1"
rm -f "up-$1"
echo ready
: >"said-$1"
case $2 in
segv) kill -SEGV $$ ;;
hang) trap "" TERM; while :; do sleep 600; done ;;
esac
`}

// More programs of the checks.
var (
	work        = program{"import time\nt=time.process_time()\nwhile time.process_time()-t<0.2: pass", `n=0; while [ $n -lt 20 ]; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; read -r s </proc/$$/stat; set -- ${s##*) }; n=$((${12}+${13})); done`}
	turning     = program{"import time\nt = time.monotonic()\nwhile time.monotonic() - t < 2: pass", "end=$(($(date +%s)+2)); while [ $(date +%s) -lt $end ]; do :; done"}
	hoarding    = program{"x = []\nwhile True: x.append(bytearray(16 << 20))", "x=$(yes aaaaaaaaaaaaaaaa)"}
	forking     = program{"import os, time\nfor i in range(200):\n    if os.fork() == 0: time.sleep(60); os._exit(0)", "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done"}
	connecting  = program{"import socket\nsocket.create_connection(('192.0.2.1', 53), 2)", "if command -v nc >/dev/null; then nc -w 2 192.0.2.1 53 </dev/null; else exec 5<>/dev/tcp/192.0.2.1/53; fi"}
	descriptors = program{`
import os
for n in range(64):
    try: os.fstat(n)
    except OSError: continue
    print(n)
`, "for n in $(seq 0 63); do [ ! -e /proc/$$/fd/$n ] || echo $n; done"}
)

// script returns a command that runs a shell script in the image.
func (f *fixture) script(text string) sandbox.Cmd {
	shell := []string{"bash", "-c"}
	if f.opts.Shell != nil {
		shell = f.opts.Shell
	}
	return sandbox.Cmd{Argv: append(slices.Clip(shell), text)}
}

func (f *fixture) python() bool { return !f.opts.NoPython }

// does returns a program in the language that the image has.
func (f *fixture) does(p program, args ...string) sandbox.Cmd {
	if f.python() {
		return sandbox.Cmd{Argv: append([]string{"python3", "-c", p.python}, args...)}
	}
	cmd := f.script(p.shell)
	cmd.Argv = append(append(cmd.Argv, "sh"), args...)
	return cmd
}

func (f *fixture) survivor(way, end string) sandbox.Cmd { return f.does(survivor, way, end) }
