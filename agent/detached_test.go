package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// shared is a buffer that one goroutine writes and another reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (f *fixture) detached(t *testing.T, script string, in io.Reader, out io.Writer) (sandbox.Process, uint64) {
	t.Helper()
	p, err := f.Start(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", script}, Stdin: in, Stdout: out, Lifetime: sandbox.LifetimeDetached})
	require.NoError(t, err)
	id, pid := p.(sandbox.Identified).ID(), p.(sandbox.Numbered).PID()
	require.NotZero(t, id)
	require.NotZero(t, pid)
	return p, id
}

// list waits until a program is as a test wants it.
func (f *fixture) list(t *testing.T, id uint64, is func(sandbox.DetachedProcess) bool) (found sandbox.DetachedProcess) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := f.Detached(t.Context())
		require.NoError(t, err)
		for _, one := range list {
			if found = one; one.ID == id && is(one) {
				return true
			}
		}
		return false
	}, 30*time.Second, time.Millisecond)
	return found
}

// TestADetachedProgramOutlivesItsConnection, and the next one goes on with it: what was
// written meanwhile is not lost, nor is how it ended.
func TestADetachedProgramOutlivesItsConnection(t *testing.T) {
	f := start(t)
	first := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	var before shared
	_, id := first.detached(t, "echo before; read x; echo $x; exit 7", neverEnds(t), &before)
	require.Eventually(t, func() bool { return before.String() == "before\n" }, 30*time.Second, time.Millisecond)
	_, err := f.Attach(t.Context(), id, sandbox.Cmd{})
	require.ErrorIs(t, err, sandbox.ErrExists)
	require.NoError(t, first.Close())
	f.list(t, id, func(p sandbox.DetachedProcess) bool { return !p.Held && !p.Ended })

	var after shared
	p, err := f.Attach(t.Context(), id, sandbox.Cmd{Stdin: strings.NewReader("after\n"), Stdout: &after})
	require.NoError(t, err)
	got, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, got.ExitCode)
	require.Equal(t, "after\n", after.String())
	_, err = f.Attach(t.Context(), id, sandbox.Cmd{})
	require.ErrorIs(t, err, sandbox.ErrNotFound)
}

// TestTheSoleOwnerEndsOtherConnections that nobody has any more, and what they ran.
func TestTheSoleOwnerEndsOtherConnections(t *testing.T) {
	f := start(t)
	first := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	_, id := first.detached(t, "read x; exit 7", neverEnds(t), io.Discard)
	_, own := f.detached(t, "read x", neverEnds(t), io.Discard)
	call, err := first.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "1000"}})
	require.NoError(t, err)
	require.NoError(t, f.EndOthers(t.Context()))
	lost, err := call.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusSandboxLost, lost.Status)
	f.list(t, id, func(p sandbox.DetachedProcess) bool { return !p.Held && !p.Ended })
	require.True(t, f.list(t, own, func(sandbox.DetachedProcess) bool { return true }).Held)

	p, err := f.Attach(t.Context(), id, sandbox.Cmd{Stdin: strings.NewReader("x\n")})
	require.NoError(t, err)
	got, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, got.ExitCode)
}

// TestWhatNobodyReadsIsBounded: the newest output stays, and what went is counted.
func TestWhatNobodyReadsIsBounded(t *testing.T) {
	f := start(t)
	first := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	_, id := first.detached(t, "until [ -e go ]; do sleep 0.01; done; head -c 20000000 /dev/zero; echo end; exit 3", nil, io.Discard)
	require.NoError(t, first.Close())
	f.list(t, id, func(p sandbox.DetachedProcess) bool { return !p.Held })
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "go"), nil, 0o644))
	ended := f.list(t, id, func(p sandbox.DetachedProcess) bool { return p.Ended })
	var rest shared
	p, err := f.Attach(t.Context(), id, sandbox.Cmd{Stdout: &rest})
	require.NoError(t, err)
	got, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, got.ExitCode)
	require.True(t, strings.HasSuffix(rest.String(), "\x00end\n"))
	require.EqualValues(t, 20000004, ended.Dropped[0]+int64(len(rest.String())))
	require.EqualValues(t, 20000004, got.Stdout.Bytes)
}

// TestADetachedProgramWithAReaderLosesNothing: it waits for one that is slow.
func TestADetachedProgramWithAReaderLosesNothing(t *testing.T) {
	f := start(t)
	var sum counted
	p, id := f.detached(t, "head -c 30000000 /dev/zero", nil, &sum)
	got, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, got.ExitCode)
	require.EqualValues(t, 30000000, sum)
	list, err := f.Detached(t.Context())
	require.NoError(t, err)
	require.Empty(t, list, "%d was read to its end", id)
}

// TestAnEndThatNobodyReadIsKept: the host's process is stopped or killed, and the program ends before the agent can
// know. The next one hears of it.
func TestAnEndThatNobodyReadIsKept(t *testing.T) {
	f := start(t)
	stream := &deaf{ReadWriteCloser: f.cmd.Connect(t), since: make(chan struct{}), closed: make(chan struct{})}
	conn, err := agent.Dial(t.Context(), stream)
	require.NoError(t, err)
	first := &fixture{conn, f.dir, f.cmd}
	_, id := first.detached(t, "until [ -e end ]; do sleep 0.01; done; exit 7", nil, nil)
	close(stream.since)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "end"), nil, 0o644))
	f.list(t, id, func(p sandbox.DetachedProcess) bool { return p.Held && p.Ended })
	require.NoError(t, first.Close())
	f.list(t, id, func(p sandbox.DetachedProcess) bool { return !p.Held && p.Ended })
	p, err := f.Attach(t.Context(), id, sandbox.Cmd{})
	require.NoError(t, err)
	got, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, got.ExitCode)
	list, err := f.Detached(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

// deaf is a stream of which nobody reads any more, since a moment.
type deaf struct {
	io.ReadWriteCloser
	since, closed chan struct{}
}

func (d *deaf) Read(p []byte) (int, error) {
	n, err := d.ReadWriteCloser.Read(p)
	select {
	case <-d.since:
		<-d.closed
		return 0, io.EOF
	default:
		return n, err
	}
}

func (d *deaf) Close() error {
	close(d.closed)
	return d.ReadWriteCloser.Close()
}

type counted int64

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

func TestDetachedProgramsAreKilledLikeOthers(t *testing.T) {
	f := start(t)
	p, _ := f.detached(t, "setsid sleep 4717 & sleep 4717", nil, nil)
	require.NoError(t, p.Kill())
	got, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusCancelled, got.Status)

	first := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	_, id := first.detached(t, "sleep 4717", nil, nil)
	require.NoError(t, first.Close())
	f.list(t, id, func(p sandbox.DetachedProcess) bool { return !p.Held })
	f.EndAll(sandbox.StatusDiskLimit)
	f.list(t, id, func(p sandbox.DetachedProcess) bool { return p.Ended })
	p, err = f.Attach(t.Context(), id, sandbox.Cmd{})
	require.NoError(t, err)
	got, err = p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusDiskLimit, got.Status)
	_, err = f.Start(t.Context(), sandbox.Cmd{Argv: []string{"true"}, Lifetime: sandbox.LifetimeDetached, Control: &sandbox.Control{}})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

// TestInputThatAHostLeftIsNotGrantedToTheNext: the next one has sent nothing yet.
func TestInputThatAHostLeftIsNotGrantedToTheNext(t *testing.T) {
	f := start(t)
	const left = 200 << 10
	first := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	in, feed := io.Pipe()
	t.Cleanup(func() { feed.Close() })
	f.sh(t, "mkfifo go")
	_, id := first.detached(t, "read x < go; head -c 400000 | wc -c; exit 5", in, nil)
	_, err := feed.Write(make([]byte, left))
	require.NoError(t, err)
	_, err = feed.Write([]byte{0}) // what was before it is sent
	require.NoError(t, err)
	require.NoError(t, first.Ping(t.Context()))
	require.NoError(t, first.Close())
	found := f.list(t, id, func(p sandbox.DetachedProcess) bool { return !p.Held })
	require.True(t, found.Input)

	var out shared
	p, err := f.Attach(t.Context(), id, sandbox.Cmd{Stdin: bytes.NewReader(make([]byte, 400000)), Stdout: &out})
	require.NoError(t, err)
	f.sh(t, "echo > go")
	got, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5, got.ExitCode)
	require.Equal(t, "400000\n", out.String())
	require.NoError(t, f.Err())
}

// TestADetachedProgramIsKnownByItsLabel, and what was read of its output is counted.
func TestADetachedProgramIsKnownByItsLabel(t *testing.T) {
	f := start(t)
	label := "{\"id\":\"x\"}\n\u00e4 \x01"
	cmd := sandbox.Cmd{Argv: []string{"bash", "-c", "echo four; echo err >&2; read x"}, Stdin: neverEnds(t), Lifetime: sandbox.LifetimeDetached, Label: label}
	first := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	p, err := first.Start(t.Context(), cmd) // without writers: what comes is thrown away
	require.NoError(t, err)
	id := p.(sandbox.Identified).ID()
	found := f.list(t, id, func(p sandbox.DetachedProcess) bool { return p.Read == [2]int64{5, 4} })
	require.Equal(t, label, found.Label)
	require.True(t, found.Held)
	require.NoError(t, p.Kill())
	_, err = p.Wait(t.Context())
	require.NoError(t, err)

	for _, wrong := range []sandbox.Cmd{
		{Argv: cmd.Argv, Label: "of no detached program"},
		{Argv: cmd.Argv, Lifetime: sandbox.LifetimeDetached, Label: strings.Repeat("x", sandbox.MaxLabel+1)},
		{Argv: cmd.Argv, Lifetime: sandbox.LifetimeDetached, Label: "\x00"},
	} {
		_, err := f.Start(t.Context(), wrong)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
	}
}

// TestAListOfAllThatEndedFitsInAFrame, whatever their labels are.
func TestAListOfAllThatEndedFitsInAFrame(t *testing.T) {
	f := start(t)
	first := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	nobody, reads := io.Pipe()
	t.Cleanup(func() { nobody.Close() })
	for range 70 {
		_, err := first.Start(t.Context(), sandbox.Cmd{
			Argv: []string{"bash", "-c", "head -c 1000000 /dev/zero", strings.Repeat("\x01", 4000)}, Lifetime: sandbox.LifetimeDetached, Label: strings.Repeat("\x01", sandbox.MaxLabel), Stdout: reads,
		})
		require.NoError(t, err)
	}
	require.NoError(t, first.Close())
	_, err := f.Detached(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.Err())
}

// TestWhatAProgramLeavesMayStay where that was asked for, and until all is ended.
func TestWhatAProgramLeavesMayStay(t *testing.T) {
	needsRoot(t)
	f := start(t)
	count := func(n int) string {
		return f.sh(t, fmt.Sprintf("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'slee[p] %d' | wc -l", n)).out
	}
	got := f.run(t, sandbox.Cmd{Argv: []string{"bash", "-c", "sleep 4718 >/dev/null 2>&1 & setsid sleep 4718 >/dev/null 2>&1 & echo hi"}, Lifetime: sandbox.LifetimeSelf})
	require.Equal(t, "hi\n", got.out)
	require.Eventually(t, func() bool { return count(4718) == "2\n" }, 30*time.Second, time.Millisecond, "they are still the shell's when it ends")
	for range 3 {
		require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
	}
	require.Equal(t, "2\n", count(4718))
	f.EndAll(sandbox.StatusCancelled)
	require.Eventually(t, func() bool { return count(4718) == "0\n" }, 30*time.Second, time.Millisecond)
}

// TestWhatLeavesNothingCostsNoMonitor: a program whose descendants may stay, and has none
// left, gives its monitor to the next one. A monitor's start costs more than most programs.
func TestWhatLeavesNothingCostsNoMonitor(t *testing.T) {
	f := start(t)
	parent := func(lifetime sandbox.Lifetime) string {
		got := f.run(t, sandbox.Cmd{Argv: []string{"bash", "-c", "/bin/true; exec cat /proc/$$/stat"}, Lifetime: lifetime})
		return strings.Fields(got.out)[3]
	}
	first := parent(sandbox.LifetimeSelf)
	for range 5 {
		require.Equal(t, first, parent(sandbox.LifetimeSelf))
	}
	require.Equal(t, first, parent(sandbox.LifetimeCall))
	p, err := f.Start(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", "/bin/true; exit 3"}, Lifetime: sandbox.LifetimeLeft})
	require.NoError(t, err)
	res, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, res.ExitCode)
	require.Equal(t, first, parent(sandbox.LifetimeSelf))
}
