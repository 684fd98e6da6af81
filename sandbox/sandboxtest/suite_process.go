package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// processChecks are about started programs that continue to run.
var processChecks = []check{
	{"a started program talks until its input ends", func(t *testing.T, f *fixture) {
		r, w := io.Pipe()
		out := newWatcher()
		cmd := f.script(`while read -r line; do echo "got $line"; done; echo bye; exit 4`)
		cmd.Stdin, cmd.Stdout = r, out
		p := f.start(t, cmd)
		for i := range 5 {
			_, err := fmt.Fprintf(w, "line %d\n", i)
			require.NoError(t, err)
			out.await(t, fmt.Sprintf("got line %d\n", i))
		}
		require.NoError(t, w.Close())
		res := wait(t, p)
		assert.Equal(t, 4, res.ExitCode)
		assert.Contains(t, out.String(), "bye\n")
		again := wait(t, p)
		assert.Equal(t, res, again, "every wait answers the same")
	}},
	{"the context of a start doesn't end the program", func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		r, w := io.Pipe()
		p, err := f.box.Start(ctx, sandbox.Cmd{Argv: []string{"cat"}, Stdin: r})
		require.NoError(t, err)
		cancel()
		assert.Equal(t, "x", f.must(t, "echo x"))
		require.NoError(t, w.Close())
		assert.Equal(t, sandbox.StatusExited, wait(t, p).Status)
	}},
	{"the end of a wait doesn't end the program", func(t *testing.T, f *fixture) {
		p := f.start(t, sandbox.Cmd{Argv: []string{"sleep", "600"}})
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := p.Wait(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, p.Kill())
		assert.Equal(t, 137, wait(t, p).ExitCode)
	}},
	{"signals reach the program's group", func(t *testing.T, f *fixture) {
		out := newWatcher()
		cmd := f.script(`trap 'echo usr1' USR1; trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.05; done`)
		cmd.Stdout = out
		p := f.start(t, cmd)
		out.await(t, "ready")
		require.NoError(t, p.Signal("USR1"))
		out.await(t, "usr1")
		require.NoError(t, p.Signal("TERM"))
		assert.Equal(t, 9, wait(t, p).ExitCode)
		assert.Contains(t, out.String(), "term")
	}},
	{"a signal that ends the program is its result", func(t *testing.T, f *fixture) {
		p := f.start(t, sandbox.Cmd{Argv: []string{"sleep", "600"}})
		require.NoError(t, p.Signal("INT"))
		res := wait(t, p)
		assert.Equal(t, sandbox.StatusSignaled, res.Status)
		assert.Equal(t, 130, res.ExitCode)
		assert.Equal(t, "INT", res.Signal)
	}},
	{"unknown signals are refused, and any after the end are no matter", func(t *testing.T, f *fixture) {
		p := f.start(t, sandbox.Cmd{Argv: []string{"sleep", "600"}})
		for _, name := range []string{"NOSUCH", "", "9", "SIGTERM", "term"} {
			assert.ErrorIs(t, p.Signal(name), sandbox.ErrInvalid, name)
		}
		require.NoError(t, p.Kill())
		wait(t, p)
		assert.NoError(t, p.Signal("TERM"))
		assert.NoError(t, p.Kill())
	}},
	{"a kill takes all that the program started", func(t *testing.T, f *fixture) {
		eachWay(t, func(t *testing.T, way string) {
			out := newWatcher()
			cmd := f.survivor(way, "hang")
			cmd.Stdout = out
			p := f.start(t, cmd)
			out.await(t, "ready")
			require.False(t, f.tryLock(t, way), "the survivor holds its lock")
			require.NoError(t, p.Kill())
			res := wait(t, p)
			assert.Contains(t, []sandbox.Status{sandbox.StatusSignaled, sandbox.StatusCancelled}, res.Status, way)
			assert.Equal(t, 137, res.ExitCode, way)
			f.released(t, way)
		})
	}},
	{"nothing of a started program outlives its end", func(t *testing.T, f *fixture) {
		p := f.start(t, f.survivor("double", "exit"))
		assert.Equal(t, sandbox.StatusExited, wait(t, p).Status)
		f.released(t, "double")
	}},
	{"a time limit holds for started programs too", func(t *testing.T, f *fixture) {
		p := f.start(t, sandbox.Cmd{Argv: []string{"sleep", "600"}, Timeout: 300 * time.Millisecond})
		res := wait(t, p)
		assert.Equal(t, sandbox.StatusTimedOut, res.Status)
		assert.Equal(t, sandbox.ExitTimeout, res.ExitCode)
	}},
	{"a started program that is not there is exit 127", func(t *testing.T, f *fixture) {
		assert.Equal(t, sandbox.ExitNotFound, wait(t, f.start(t, sandbox.Cmd{Argv: []string{"no-such-program"}})).ExitCode)
	}},
	{"started programs don't hold other calls", func(t *testing.T, f *fixture) {
		for range 8 {
			f.start(t, sandbox.Cmd{Argv: []string{"sleep", "600"}})
		}
		assert.Equal(t, "on", f.must(t, "echo on"))
	}},
	{"without a terminal there is nothing to resize", func(t *testing.T, f *fixture) {
		p := f.start(t, sandbox.Cmd{Argv: []string{"sleep", "600"}})
		assert.ErrorIs(t, p.Resize(sandbox.WinSize{Cols: 80, Rows: 24}), sandbox.ErrUnsupported)
	}},
}

// terminalChecks are about programs on a terminal.
var terminalChecks = []check{
	{"a terminal is the three streams, with its size", func(t *testing.T, f *fixture) {
		cmd := f.script("test -t 0 && test -t 1 && test -t 2 && echo tty; stty size; echo err >&2; echo again > $(tty)")
		cmd.TTY = &sandbox.WinSize{Cols: 91, Rows: 33}
		o := f.run(t, cmd)
		assert.Contains(t, o.out, "tty\r\n33 91\r\nerr\r\nagain\r\n")
		assert.Empty(t, o.err)
		assert.Zero(t, o.Stderr.Bytes)
	}},
	{"a terminal can be resized", func(t *testing.T, f *fixture) {
		r, w := io.Pipe()
		defer w.Close()
		out := newWatcher()
		cmd := f.script("trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done")
		cmd.TTY, cmd.Stdin, cmd.Stdout = &sandbox.WinSize{Cols: 80, Rows: 24}, r, out
		p := f.start(t, cmd)
		out.await(t, "ready")
		require.NoError(t, p.Resize(sandbox.WinSize{Cols: 132, Rows: 50}))
		out.await(t, "50 132")
		wait(t, p)
	}},
	{"a terminal can be resized while its program ends", func(t *testing.T, f *fixture) {
		cmd := sandbox.Cmd{Argv: []string{"true"}, TTY: &sandbox.WinSize{Cols: 80, Rows: 24}}
		for range 10 {
			p := f.start(t, cmd)
			resized := make(chan error, 1)
			go func() {
				var err error
				for cols := range uint16(100) {
					err = errors.Join(err, p.Resize(sandbox.WinSize{Cols: cols + 1, Rows: 50}))
				}
				resized <- err
			}()
			assert.Equal(t, sandbox.StatusExited, wait(t, p).Status)
			require.NoError(t, <-resized)
		}
	}},
	{"control-C on a terminal interrupts the program", func(t *testing.T, f *fixture) {
		r, w := io.Pipe()
		defer w.Close()
		out := newWatcher()
		cmd := f.script("echo ready; exec sleep 600")
		cmd.TTY, cmd.Stdin, cmd.Stdout = &sandbox.WinSize{Cols: 80, Rows: 24}, r, out
		p := f.start(t, cmd)
		out.await(t, "ready")
		_, err := w.Write([]byte{3})
		require.NoError(t, err)
		assert.Equal(t, "INT", wait(t, p).Signal)
	}},
	{"the end of stdin is the end of file on a terminal", func(t *testing.T, f *fixture) {
		cmd := sandbox.Cmd{Argv: []string{"cat"}, TTY: &sandbox.WinSize{Cols: 80, Rows: 24}, Timeout: prompt}
		o := f.run(t, cmd)
		assert.Equal(t, sandbox.StatusExited, o.Status, o.Signal)
	}},
	{"a program that closes its terminal is not hung up", func(t *testing.T, f *fixture) {
		cmd := f.script("exec 0<&- 1>&- 2>&-; sleep 0.2; exit 5")
		cmd.TTY = &sandbox.WinSize{Cols: 80, Rows: 24}
		o := f.run(t, cmd)
		assert.Equal(t, 5, o.ExitCode, o.Signal)
	}},
}
