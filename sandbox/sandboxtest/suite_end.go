package sandboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// eachWay runs a check for each way to stay behind, all at the same time.
func eachWay(t *testing.T, run func(t *testing.T, way string)) {
	for _, way := range []string{"child", "setsid", "double"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			run(t, way)
		})
	}
}

// endChecks are about the end of programs, which leave nothing behind.
var endChecks = []check{
	{"nothing outlives an exit, whatever holds the streams", func(t *testing.T, f *fixture) {
		eachWay(t, func(t *testing.T, way string) {
			cmd := f.survivor(way, "exit")
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
			o := f.run(t, f.survivor(way, "segv"))
			assert.Equal(t, sandbox.StatusSignaled, o.Status, way)
			f.released(t, way)
		})
	}},
	{"a timeout ends everything in time, also what ignores signals", func(t *testing.T, f *fixture) {
		eachWay(t, func(t *testing.T, way string) {
			o := f.hangs(t, f.survivor(way, "hang"), way)
			assert.Equal(t, sandbox.StatusTimedOut, o.Status, way)
			assert.Equal(t, sandbox.ExitTimeout, o.ExitCode, way)
			assert.Equal(t, "ready\n", o.out, "what was written before is there")
			f.released(t, way)
		})
	}},
	{"at a timeout a program gets TERM first, and time to clean up", func(t *testing.T, f *fixture) {
		cmd := f.script(`trap 'echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.05; done`)
		o := f.limited(t, cmd, 500*time.Millisecond, func(o outcome) bool { return o.out != "" })
		assert.Equal(t, sandbox.StatusTimedOut, o.Status)
		assert.Equal(t, sandbox.ExitTimeout, o.ExitCode)
		assert.Equal(t, "ready\ncleaned\n", o.out)
	}},
	{"signals reach a program that runs to its end", func(t *testing.T, f *fixture) {
		out, signals := newWatcher(), make(chan string)
		cmd := f.script(`trap 'echo int' INT; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.05; done`)
		cmd.Stdout, cmd.Signals = out, signals
		go func() {
			defer close(signals)
			if assert.True(t, out.comes("ready")) {
				signals <- "INT"
			}
			if assert.True(t, out.comes("int")) {
				signals <- "TERM"
			}
		}()
		res, err := f.box.Run(context.Background(), cmd)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusExited, res.Status)
		assert.Equal(t, 5, res.ExitCode)
		assert.True(t, out.comes("term"))
	}},
	{"a timeout ends endless output", func(t *testing.T, f *fixture) {
		cmd := sandbox.Cmd{Argv: []string{"yes"}, Capture: &sandbox.Capture{Forward: 1000, Tail: 10}}
		o := f.limited(t, cmd, 500*time.Millisecond, func(o outcome) bool { return o.Stdout.Bytes > 1010 })
		assert.Equal(t, sandbox.StatusTimedOut, o.Status)
		assert.Len(t, o.out, 1000)
		assert.Greater(t, o.Stdout.Bytes, int64(1000))
		assert.Len(t, o.Stdout.Tail, 10)
	}},
	{"a timeout that isn't reached changes nothing", func(t *testing.T, f *fixture) {
		cmd := f.script("sleep 0.2; exit 124")
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
			cmd := f.survivor(way, "hang")
			cmd.Stdout = out
			go func() {
				assert.True(t, out.comes("ready"))
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
