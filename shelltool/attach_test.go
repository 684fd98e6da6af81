package shelltool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

// screen collects output.
type screen struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

func (s *screen) shows(t *testing.T, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.String(), want) }, 30*time.Second, time.Millisecond, "%q", want)
}

// begin starts a script as a process with open input.
func (b *bench) begin(script string) string {
	b.t.Helper()
	info, err := b.shell.Start(b.t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", script}}, shelltool.StartOptions{Open: true})
	require.NoError(b.t, err)
	return info.ProcessID
}

func (b *bench) attach(id string, opts shelltool.AttachOptions) *shelltool.Attachment {
	b.t.Helper()
	a, err := b.shell.Attach(b.t.Context(), id, opts)
	require.NoError(b.t, err)
	return a
}

func (b *bench) result(a *shelltool.Attachment) sandbox.Result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer cancel()
	res, err := a.Wait(ctx)
	require.NoError(b.t, err)
	return res
}

func (b *bench) logs(id string, opts shelltool.OutputOptions) (string, string, *shelltool.ProcessInfo) {
	b.t.Helper()
	var out, errs strings.Builder
	opts.Stdout, opts.Stderr = &out, &errs
	info, err := b.shell.Output(b.t.Context(), id, opts)
	require.NoError(b.t, err)
	return out.String(), errs.String(), info
}

func TestThereIsOneListOfProcesses(t *testing.T) {
	b := newBench(t)
	begun := b.begin("read x; echo got $x")
	started := b.start(`{"script":"echo mine; sleep 600"}`)
	list, _ := must[shelltool.ListResult](b, "process_list", `{}`)
	require.Len(t, list.Processes, 2)
	assert.Equal(t, [2]string{begun, started}, [2]string{list.Processes[0].ProcessID, list.Processes[1].ProcessID})
	_, _ = must[shelltool.WriteResult](b, "process_write", fmt.Sprintf(`{"process_id":%q,"data":"a line\n"}`, begun))
	all, r := b.readUntil(begun, "")
	assert.Equal(t, "got a line\n", all)
	assert.Equal(t, 0, *r.ExitCode)
	b.readUntil(started, "mine")
	out, _, info := b.logs(started, shelltool.OutputOptions{})
	assert.Equal(t, "mine\n", out)
	assert.Equal(t, "running", info.State)
}

func TestOutputKeepsItsStreamAndItsOrder(t *testing.T) {
	b := newBench(t)
	id := b.begin("for i in 1 2 3; do echo out $i; read x; echo err $i >&2; read x; done")
	for i := range 3 { // each piece must arrive before the next is written, so that the order is known
		for _, stream := range []string{"out", "err"} {
			b.readUntil(id, fmt.Sprintf("%s %d\n", stream, i+1))
			_, _ = must[shelltool.WriteResult](b, "process_write", fmt.Sprintf(`{"process_id":%q,"data":"\n"}`, id))
		}
	}
	out, errs, info := b.logs(id, shelltool.OutputOptions{Follow: true})
	assert.Equal(t, "out 1\nout 2\nout 3\n", out)
	assert.Equal(t, "err 1\nerr 2\nerr 3\n", errs)
	assert.Equal(t, "exited", info.State)
	for lines, want := range map[int][2]string{-1: {}, 1: {"", "err 3\n"}, 2: {"out 3\n", "err 3\n"}, 3: {"out 3\n", "err 2\nerr 3\n"}, 100: {out, errs}} {
		out, errs, _ := b.logs(id, shelltool.OutputOptions{Tail: lines})
		assert.Equal(t, want, [2]string{out, errs}, "%d lines", lines)
	}
}

func TestWhoLeavesTakesNothingAlong(t *testing.T) {
	b := newBench(t)
	id := b.begin("while read x; do echo got $x; done; echo end; exit 5")
	var first, second screen
	in, keys := io.Pipe()
	a := b.attach(id, shelltool.AttachOptions{Stdin: in, Stdout: &first})
	_, _ = io.WriteString(keys, "one\n")
	first.shows(t, "got one")
	require.NoError(t, a.Kill())
	_, err := a.Wait(t.Context())
	assert.ErrorIs(t, err, shelltool.ErrLeft)
	require.NoError(t, keys.CloseWithError(errors.New("gone")))
	assert.Equal(t, 1, b.shell.Running())

	again := b.attach(id, shelltool.AttachOptions{Stdin: strings.NewReader("two\n"), Stdout: &second, CloseStdin: true, Replay: 1})
	res := b.result(again)
	assert.Equal(t, 5, res.ExitCode)
	assert.Equal(t, "got one\ngot two\nend\n", second.String())
	assert.Equal(t, "got one\n", first.String())

	var last screen
	res = b.result(b.attach(id, shelltool.AttachOptions{Stdin: strings.NewReader("three"), Stdout: &last}))
	assert.Equal(t, 5, res.ExitCode)
	assert.Equal(t, second.String(), last.String(), "of one that has ended the last lines are shown")
}

// TestOnlyTheProperEndOfInputClosesIt, and only with CloseStdin.
func TestOnlyTheProperEndOfInputClosesIt(t *testing.T) {
	b := newBench(t)
	id := b.begin("while read x; do echo got $x; done; echo end")
	var out screen
	b.attach(id, shelltool.AttachOptions{Stdin: strings.NewReader("one\n"), Stdout: &out})
	out.shows(t, "got one")
	broken := io.MultiReader(strings.NewReader("two\n"), readerFunc(func([]byte) (int, error) { return 0, errors.New("the client is gone") }))
	b.attach(id, shelltool.AttachOptions{Stdin: broken, CloseStdin: true})
	out.shows(t, "got two")
	b.attach(id, shelltool.AttachOptions{Stdin: strings.NewReader("three\n")})
	out.shows(t, "got three")
	assert.NotContains(t, out.String(), "end")
	b.attach(id, shelltool.AttachOptions{Stdin: strings.NewReader(""), CloseStdin: true})
	out.shows(t, "end")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestTwoAtOneProcessBothSeeAllAndBothAreHeard(t *testing.T) {
	b := newBench(t)
	id := b.begin("for i in 1 2 3 4; do read x; echo got $x; done")
	var screens [2]screen
	var all [2]*shelltool.Attachment
	for i := range all {
		all[i] = b.attach(id, shelltool.AttachOptions{Stdin: strings.NewReader(fmt.Sprintf("%d\n%d\n", i, i)), Stdout: &screens[i], Replay: -1})
	}
	for i, a := range all {
		b.result(a)
		assert.Equal(t, 2, strings.Count(screens[i].String(), "got 0\n"))
		assert.Equal(t, 2, strings.Count(screens[i].String(), "got 1\n"))
	}
	assert.Equal(t, screens[0].String(), screens[1].String())
}

// TestMuchInputWaitsForItsReader: more than may wait unread.
func TestMuchInputWaitsForItsReader(t *testing.T) {
	b := newBench(t)
	const size = 5 << 20
	id := b.begin("sleep 0.2; wc -c")
	var out screen
	b.result(b.attach(id, shelltool.AttachOptions{Stdin: io.LimitReader(zeros{}, size), CloseStdin: true, Stdout: &out}))
	assert.Equal(t, fmt.Sprintln(size), out.String())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// stuck accepts nothing until it is closed.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

// TestAGigabyteNobodyReads: neither missing readers nor one that stops reading slow the program
// down; memory stays bounded, readers come and go, and dropped output is counted.
func TestAGigabyteNobodyReads(t *testing.T) {
	hosttest.OfMemory(t)
	b := newBench(t)
	const size, kept, most = 1 << 30, 8 << 20, 48 << 20
	id := b.begin("head -c 1073741824 /dev/zero; echo; echo last >&2")
	late := make(stuck)
	slow := b.attach(id, shelltool.AttachOptions{Stdout: late})
	before, high := heap(), uint64(0)
	for {
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := b.shell.Output(short, id, shelltool.OutputOptions{Stdout: io.Discard, Follow: true}) // comes and goes
		cancel()
		high = max(high, heap())
		if err == nil {
			break
		}
	}
	assert.Less(t, high, before+most)
	close(late)
	res := b.result(slow)
	require.Len(t, res.Notices, 1)
	assert.Contains(t, res.Notices[0], "bytes of output were dropped")
	out, errs, info := b.logs(id, shelltool.OutputOptions{})
	assert.Equal(t, "last\n", errs)
	assert.Len(t, out, kept-len(errs))
	assert.Equal(t, int64(size+1+5-kept), info.DroppedBytes)
	assert.Equal(t, int64(size+1+5), info.OutputBytes)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestAReaderKeepsWhatOthersForget: only the last ended processes are listed.
func TestAReaderKeepsWhatOthersForget(t *testing.T) {
	b := newBench(t)
	id := b.begin("head -c 1000000 /dev/zero")
	late := make(stuck)
	slow := b.attach(id, shelltool.AttachOptions{Stdout: late, Replay: -1})
	for range 17 {
		b.readUntil(b.begin("true"), "")
	}
	_, err := b.shell.Attach(t.Context(), id, shelltool.AttachOptions{})
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	close(late)
	assert.Empty(t, b.result(slow).Notices)
}

func TestTheEndOfTheShellEndsWhoIsAttached(t *testing.T) {
	b := newBench(t)
	id := b.begin("sleep 600")
	a := b.attach(id, shelltool.AttachOptions{Stdin: readerFunc(func([]byte) (int, error) { return 0, io.EOF })})
	followed := make(chan error, 1)
	go func() {
		_, err := b.shell.Output(context.Background(), id, shelltool.OutputOptions{Follow: true})
		followed <- err
	}()
	require.NoError(t, b.shell.Close())
	_, err := a.Wait(t.Context())
	assert.ErrorIs(t, err, shelltool.ErrLeft)
	assert.Equal(t, tool.Closed, tool.KindOf(<-followed))
	_, err = b.shell.Attach(t.Context(), id, shelltool.AttachOptions{})
	assert.Equal(t, tool.Closed, tool.KindOf(err))
}

func TestTheEndOfEachProcessIsToldOnce(t *testing.T) {
	var mu sync.Mutex
	told := map[string]int{}
	b := newBench(t, func(o *shelltool.Options) {
		o.Ended = func(_ context.Context, info shelltool.ProcessInfo, res sandbox.Result) {
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, *info.ExitCode, res.ExitCode)
			told[strings.Join(info.Command, " ")+" "+info.State]++
		}
	})
	b.readUntil(b.begin("exit 3"), "")
	b.readUntil(b.start(`{"commands":["true"]}`), "")
	b.start(`{"commands":["sleep","600"]}`)
	b.script("exit 4")
	polled, err := b.shell.Execute(tool.WithPolling(t.Context(), time.Millisecond), shelltool.ExecuteParams{Command: shelltool.Command{Script: "until [ -e go ]; do sleep 0.01; done"}})
	require.NoError(t, err)
	require.Equal(t, sandbox.Status("running"), polled.Status)
	b.script("touch go")
	b.readUntil(polled.ProcessID, "")
	require.NoError(t, b.shell.Close())
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[string]int{"bash -c exit 3 exited": 1, "true exited": 1, "sleep 600 signaled": 1, "bash -c exited": 1}, told)
}

// asked records the command and runs nothing.
type asked struct{ cmd sandbox.Cmd }

func (a *asked) Run(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	return sandbox.Result{}, sandbox.ErrUnsupported
}

func (a *asked) Start(_ context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	a.cmd = cmd
	return numbered{}, nil
}

// numbered is an ended process with a process number.
type numbered struct{ sandbox.Process }

func (numbered) PID() int { return 4711 }

func (numbered) Wait(context.Context) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusExited, Duration: 1}, nil
}

func (numbered) Kill() error { return nil }

// TestWhatASandboxCanIsAskedOfIt covers directories outside of the workspace, and the process
// number.
func TestWhatASandboxCanIsAskedOfIt(t *testing.T) {
	a := &asked{}
	b := newBench(t, func(o *shelltool.Options) { o.Runner = func(context.Context) (sandbox.Runner, error) { return a, nil } })
	info, err := b.shell.Start(t.Context(), sandbox.Cmd{Argv: []string{"true", strings.Repeat("ä", 60)}, Dir: "/etc"}, shelltool.StartOptions{})
	require.NoError(t, err)
	assert.Equal(t, "/etc", a.cmd.Dir)
	assert.Equal(t, "/etc", info.Cwd)
	assert.Equal(t, 4711, info.PID)
	assert.Equal(t, strings.Repeat("ä", 31)+"…", info.Command[1])
	assert.Nil(t, a.cmd.Stdin, "it has no input")
}

// slowly reads one piece each time it is allowed to.
type slowly struct {
	next chan struct{}
	got  atomic.Int64
}

func (s *slowly) Write(p []byte) (int, error) {
	<-s.next
	s.got.Add(int64(len(p)))
	return len(p), nil
}

func TestAReaderThatIsWaitedForLosesNothing(t *testing.T) {
	b := newBench(t)
	r := &slowly{next: make(chan struct{})}
	info, err := b.shell.Start(t.Context(), sandbox.Cmd{Argv: []string{"head", "-c", "33554432", "/dev/zero"}}, shelltool.StartOptions{Hold: time.Hour})
	require.NoError(t, err)
	a := b.attach(info.ProcessID, shelltool.AttachOptions{Stdout: r, Replay: -1, Hold: time.Hour})
	over := make(chan struct{})
	go func() {
		for {
			select {
			case r.next <- struct{}{}:
			case <-over:
				return
			}
		}
	}()
	res := b.result(a)
	close(over)
	assert.Empty(t, res.Notices)
	assert.EqualValues(t, 32<<20, r.got.Load())
}

func TestAReaderThatTakesNothingIsNotWaitedForLong(t *testing.T) {
	b := newBench(t)
	id := b.begin(`head -c 33554432 /dev/zero; touch done; read line`)
	r := &slowly{next: make(chan struct{})}
	a := b.attach(id, shelltool.AttachOptions{Stdout: r, Replay: -1, Hold: time.Millisecond})
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(b.workspace, "done"))
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, b.shell.Input(t.Context(), id, []byte("\xff\n"), true))
	close(r.next)
	res := b.result(a)
	require.Len(t, res.Notices, 1)
	assert.Contains(t, res.Notices[0], "were dropped")
	assert.Equal(t, tool.Conflict, tool.KindOf(b.shell.Input(t.Context(), id, []byte("x"), false)))
}

func TestAProcessHasItsTag(t *testing.T) {
	b := newBench(t)
	info, err := b.shell.Start(t.Context(), sandbox.Cmd{Argv: []string{"true"}}, shelltool.StartOptions{Tag: "mine", AtOnce: true})
	require.NoError(t, err)
	assert.Equal(t, "mine", info.Tag)
	_, err = b.shell.Start(t.Context(), sandbox.Cmd{Argv: []string{"true"}}, shelltool.StartOptions{Tag: strings.Repeat("x", shelltool.MaxTag+1)})
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}
