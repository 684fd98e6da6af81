package sandboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// survivor starts a process that ignores signals and holds a lock in the
// workspace, in one of several ways, then ends as told. The host side sees by
// the lock whether it is still there.
const survivor = `
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
if end == "segv":
    os.kill(os.getpid(), signal.SIGSEGV)
if end == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
os._exit(0)
`

// eachWay runs a check for each way to stay behind, all at the same time.
func eachWay(t *testing.T, run func(t *testing.T, way string)) {
	for _, way := range []string{"child", "setsid", "double"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			run(t, way)
		})
	}
}

// endChecks are about how programs are ended, and that nothing is left of them.
var endChecks = []check{
	{"nothing outlives an exit, whatever holds the streams", func(t *testing.T, f *fixture) {
		eachWay(t, func(t *testing.T, way string) {
			cmd := python(survivor, way, "exit")
			cmd.Timeout = 2 * prompt
			o := f.run(t, cmd)
			assert.Equal(t, sandbox.StatusExited, o.Status, way)
			assert.Equal(t, "ready\n", o.out, way)
			assert.Less(t, o.Duration, prompt, way)
			f.released(t, way)
		})
	}},
	{"nothing outlives a crash", func(t *testing.T, f *fixture) {
		eachWay(t, func(t *testing.T, way string) {
			o := f.run(t, python(survivor, way, "segv"))
			assert.Equal(t, sandbox.StatusSignaled, o.Status, way)
			f.released(t, way)
		})
	}},
	{"a timeout ends everything in time, also what ignores signals", func(t *testing.T, f *fixture) {
		eachWay(t, func(t *testing.T, way string) {
			cmd := python(survivor, way, "hang")
			cmd.Timeout = 1500 * time.Millisecond
			o := f.run(t, cmd)
			assert.Equal(t, sandbox.StatusTimedOut, o.Status, way)
			assert.Equal(t, sandbox.ExitTimeout, o.ExitCode, way)
			assert.Equal(t, "ready\n", o.out, "what was written before is there")
			assert.GreaterOrEqual(t, o.Duration, cmd.Timeout, way)
			assert.Less(t, o.Duration, cmd.Timeout+prompt, way)
			f.released(t, way)
		})
	}},
	{"a timeout ends endless output", func(t *testing.T, f *fixture) {
		cmd := sandbox.Cmd{Argv: []string{"yes"}, Timeout: 500 * time.Millisecond, Capture: &sandbox.Capture{Forward: 1000, Tail: 10}}
		o := f.run(t, cmd)
		assert.Equal(t, sandbox.StatusTimedOut, o.Status)
		assert.Len(t, o.out, 1000)
		assert.Greater(t, o.Stdout.Bytes, int64(1000))
		assert.Len(t, o.Stdout.Tail, 10)
	}},
	{"a timeout that isn't reached changes nothing", func(t *testing.T, f *fixture) {
		cmd := bash("sleep 0.2; exit 124")
		cmd.Timeout = prompt
		o := f.run(t, cmd)
		assert.Equal(t, sandbox.StatusExited, o.Status)
		assert.Equal(t, 124, o.ExitCode)
	}},
	{"a cancelled call ends everything and says so", func(t *testing.T, f *fixture) {
		eachWay(t, func(t *testing.T, way string) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			out := newWatcher()
			cmd := python(survivor, way, "hang")
			cmd.Stdout = out
			go func() {
				out.await(t, "ready")
				assert.False(t, f.tryLock(t, way), "the survivor holds its lock")
				cancel()
			}()
			res, err := f.box.Run(ctx, cmd)
			require.NoError(t, err)
			assert.Equal(t, sandbox.StatusCancelled, res.Status, way)
			assert.Equal(t, 137, res.ExitCode, way)
			f.released(t, way)
		})
	}},
	{"a deadline of the caller counts as cancelled, not as a timeout", func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		res, err := f.box.Run(ctx, sandbox.Cmd{Argv: []string{"sleep", "600"}, Timeout: time.Hour})
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusCancelled, res.Status)
	}},
	{"a call that is cancelled before it begins runs nothing", func(t *testing.T, f *fixture) {
		f.must(t, "rm -f never")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		res, err := f.box.Run(ctx, sandbox.Cmd{Argv: []string{"touch", "never"}})
		if err != nil {
			assert.ErrorIs(t, err, context.Canceled)
		} else {
			assert.Equal(t, sandbox.StatusCancelled, res.Status)
		}
		assert.NoFileExists(t, f.spec.Workspace+"/never")
	}},
	{"the sandbox goes on after all that", func(t *testing.T, f *fixture) {
		assert.Equal(t, "on", f.must(t, "echo on"))
	}},
}
