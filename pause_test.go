package wisbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

// pausing is a backend whose sandboxes count their pauses and resumes. A program in a frozen
// sandbox doesn't end, whatever is done to it.
type pausing struct {
	sandbox.Backend
	paused, resumed atomic.Int32

	meet  func(ctx context.Context, what string) error // called by Pause and Resume, nil for nothing
	opens func()                                       // called by Open

	mu    sync.Mutex
	still map[string]chan struct{} // of frozen sandboxes; closed by Resume
}

func (b *pausing) Unwrap() sandbox.Backend { return b.Backend }

func (b *pausing) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := b.Backend.Create(ctx, spec)
	return b.wrap(sb, spec.ID, err)
}

func (b *pausing) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if b.opens != nil {
		b.opens()
	}
	sb, err := b.Backend.Open(ctx, spec)
	if err == nil && b.standing(spec.ID) != nil {
		if err = spec.Wake(ctx, func() error { b.wake(spec.ID); return nil }); err != nil {
			_ = sb.Detach()
			return nil, err
		}
	}
	return b.wrap(sb, spec.ID, err)
}

func (b *pausing) wrap(sb sandbox.Sandbox, id string, err error) (sandbox.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	return &pausable{Sandbox: sb, b: b, id: id, left: make(chan struct{})}, nil
}

// List reports frozen sandboxes as such.
func (b *pausing) List(ctx context.Context) ([]sandbox.Info, error) {
	all, err := b.Backend.List(ctx)
	for i := range all {
		if b.standing(all[i].ID) != nil {
			all[i].State = "paused"
		}
	}
	return all, err
}

func (b *pausing) standing(id string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.still[id]
}

func (b *pausing) stand(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.still == nil {
		b.still = map[string]chan struct{}{}
	}
	if b.still[id] == nil {
		b.still[id] = make(chan struct{})
	}
}

func (b *pausing) wake(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.still[id] != nil {
		close(b.still[id])
		delete(b.still, id)
	}
}

type pausable struct {
	sandbox.Sandbox
	b    *pausing
	id   string
	once sync.Once
	left chan struct{} // closed when the handle is given up
}

func (p *pausable) Unwrap() sandbox.Sandbox { return p.Sandbox }

func (p *pausable) Pause(ctx context.Context) error {
	p.b.paused.Add(1)
	if p.b.meet != nil {
		if err := p.b.meet(ctx, "pause"); err != nil {
			return err
		}
	}
	p.b.stand(p.id)
	return nil
}

func (p *pausable) Resume(ctx context.Context) error {
	p.b.resumed.Add(1)
	if p.b.meet != nil {
		if err := p.b.meet(ctx, "resume"); err != nil {
			return err
		}
	}
	p.b.wake(p.id)
	return nil
}

func (p *pausable) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	type ended struct {
		res sandbox.Result
		err error
	}
	over := make(chan ended, 1)
	go func() {
		res, err := p.Sandbox.Run(ctx, cmd)
		for still := p.b.standing(p.id); still != nil; still = p.b.standing(p.id) {
			select {
			case <-still:
			case <-p.left:
				return
			}
		}
		over <- ended{res, err}
	}()
	select {
	case e := <-over:
		return e.res, e.err
	case <-p.left:
		return sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}, nil
	}
}

func (p *pausable) Detach() error {
	p.once.Do(func() { close(p.left) })
	return p.Sandbox.Detach()
}

func (p *pausable) Close(ctx context.Context) error {
	p.once.Do(func() { close(p.left) })
	p.b.wake(p.id) // a removed sandbox isn't frozen
	return p.Sandbox.Close(ctx)
}

// TestAPausedSessionAnswersAtOnce, wherever its work is done.
func TestAPausedSessionAnswersAtOnce(t *testing.T) {
	check := func(t *testing.T, s *wisbox.Session, b *pausing) {
		process, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}}, nil)
		require.NoError(t, err)
		require.NoError(t, s.Pause(t.Context()))
		require.NoError(t, s.Pause(t.Context()), "it is paused already")
		in, err := s.Inspect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "paused", in.State)
		require.NotNil(t, in.Paused)

		for name, do := range map[string]func() error{
			"run":   func() error { _, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); return err },
			"start": func() error { _, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); return err },
			"process": func() error {
				_, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"true"}}, nil)
				return err
			},
			"signal": func() error { _, err := s.SignalProcess(t.Context(), process.ProcessID, "KILL"); return err },
			"attach": func() error { _, err := s.AttachProcess(t.Context(), process.ProcessID, nil); return err },
			"reset":  func() error { return s.Reset(t.Context()) },
			"dial":   func() error { _, err := s.Dial(t.Context(), 8000); return err },
			"shell":  func() error { _, err := call(t, s, "shell_execute", `{"script":"true"}`); return err },
			"write": func() error {
				_, err := call(t, s, "process_write", `{"process_id":"`+process.ProcessID+`","data":"x"}`)
				return err
			},
			"evaluate": func() error { _, err := call(t, s, "evaluate_python", `{"code":"1","sandbox":"wasm"}`); return err },
			"lisp":     func() error { _, err := call(t, s, "list-definitions", `{}`); return err },
		} {
			err := do()
			assert.Equal(t, tool.Unavailable, tool.KindOf(err), "%s: %v", name, err)
			assert.ErrorContains(t, err, "wisbox resume", name)
		}
		text(t, s, "write_file", `{"file_path":"f","content":"x"}`)
		text(t, s, "snapshot_create", `{"quiesce":true}`)
		list, err := s.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, "running", list[0].State)
		c, err := s.Clone(t.Context(), nil)
		require.NoError(t, err)
		_, err = c.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		require.NoError(t, err, "a clone isn't paused")
		require.NoError(t, c.Close(t.Context()))
		assert.EqualValues(t, 1, b.paused.Load())

		done, err := s.Resume(t.Context())
		require.NoError(t, err)
		assert.False(t, done.Lost)
		_, err = s.Resume(t.Context())
		require.NoError(t, err, "it goes on already")
		assert.EqualValues(t, 1, b.resumed.Load())
		_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		require.NoError(t, err)
		_, err = s.SignalProcess(t.Context(), process.ProcessID, "KILL")
		require.NoError(t, err)
	}
	t.Run("local", func(t *testing.T) {
		b := &pausing{Backend: sandboxtest.NewHost()}
		m, _ := manager(t, wisbox.Options{Backend: b})
		s, err := m.Open(t.Context(), nil)
		require.NoError(t, err)
		check(t, s, b)
	})
	t.Run("held", func(t *testing.T) {
		b := &pausing{Backend: sandboxtest.NewHost()}
		s, _, _ := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{Backend: b})
		check(t, s, b)
	})
}

// TestAPauseIsTheSessionsAndNotTheProcesss: another process finds it, and can end it.
func TestAPauseIsTheSessionsAndNotTheProcesss(t *testing.T) {
	b := &pausing{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Kept: true, Name: "box"})
	require.NoError(t, err)
	other, err := m.Attach(t.Context(), "box")
	require.NoError(t, err)
	require.NoError(t, s.Pause(t.Context()))
	_, err = other.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	assert.Equal(t, tool.Unavailable, tool.KindOf(err), "%v", err)
	list, err := m.List(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, "paused", list[0].State.Status)
	done, err := other.Resume(t.Context())
	require.NoError(t, err)
	assert.False(t, done.Lost, "there was no container")
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)

	require.NoError(t, other.Pause(t.Context()))
	require.NoError(t, b.Remove(t.Context(), "box"))
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, other.Close(t.Context()))
	s, err = m.Attach(t.Context(), "box")
	require.NoError(t, err)
	done, err = s.Resume(t.Context())
	require.NoError(t, err)
	assert.True(t, done.Lost)
	require.NoError(t, s.Close(t.Context()))
}

// TestAPausedSessionGoesOnFromItsFilesAlone: frozen programs are gone, and running calls end.
func TestAPausedSessionGoesOnFromItsFilesAlone(t *testing.T) {
	b := &pausing{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Kept: true, Name: "box"})
	require.NoError(t, err)
	over := underWay(t, t.Context(), s)
	require.NoError(t, s.Pause(t.Context()))
	require.NoError(t, s.ResumeFromFiles(t.Context()))
	assert.NotEqual(t, sandbox.StatusExited, <-over)
	assert.Zero(t, b.resumed.Load(), "nothing of it has gone on")
	res, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"test", "-e", fmt.Sprintf("up%d", ups.Load())}})
	require.NoError(t, err)
	assert.Zero(t, res.ExitCode)
	require.NoError(t, s.ResumeFromFiles(t.Context()), "it isn't paused")
	require.NoError(t, s.Close(t.Context()))
}

// underWay starts a program that doesn't end by itself, and returns once it runs. over receives its
// status at the end of the call.
func underWay(t *testing.T, ctx context.Context, s *wisbox.Session) (over <-chan sandbox.Status) { //nolint:revive // as in testing
	t.Helper()
	name := fmt.Sprintf("up%d", ups.Add(1))
	done := make(chan sandbox.Status, 1)
	go func() {
		res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo > " + name + "; exec sleep 600"}})
		if err != nil {
			res.Status = sandbox.Status(err.Error())
		}
		done <- res.Status
	}()
	up := filepath.Join(s.WorkspacePath(), name)
	require.Eventually(t, func() bool { _, err := os.Stat(up); return err == nil }, 30*time.Second, time.Millisecond)
	return done
}

var ups atomic.Int32 // files of underWay

// TestAPausedSessionIsClosedWithACallUnderWay, whose program is frozen and can't be ended.
func TestAPausedSessionIsClosedWithACallUnderWay(t *testing.T) {
	for name, opts := range map[string]*wisbox.SessionOptions{"ephemeral": nil, "kept": {Kept: true, Name: "box"}} {
		t.Run(name, func(t *testing.T) {
			b := &pausing{Backend: sandboxtest.NewHost()}
			m, _ := manager(t, wisbox.Options{Backend: b})
			s, err := m.Open(t.Context(), opts)
			require.NoError(t, err)
			over := underWay(t, t.Context(), s)
			require.NoError(t, s.Pause(t.Context()))
			require.NoError(t, s.Close(t.Context()))
			assert.Equal(t, sandbox.StatusCancelled, <-over)
			left, err := b.List(t.Context())
			require.NoError(t, err)
			if opts == nil {
				assert.Empty(t, left)
				return
			}
			require.Len(t, left, 1)
			assert.Equal(t, "paused", left[0].State)
			s, err = m.Attach(t.Context(), "box")
			require.NoError(t, err)
			done, err := s.Resume(t.Context())
			require.NoError(t, err)
			assert.False(t, done.Lost)
			_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
			require.NoError(t, err)
			require.NoError(t, s.Close(t.Context()))
			require.NoError(t, m.Remove(t.Context(), "box"))
		})
	}
}

// TestAPausedSessionIsClosedForACallerThatIsGone, since its calls must end all the same.
func TestAPausedSessionIsClosedForACallerThatIsGone(t *testing.T) {
	b := &pausing{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	over := underWay(t, t.Context(), s)
	require.NoError(t, s.Pause(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Close(ctx) // its error lists the remains
	assert.Equal(t, sandbox.StatusCancelled, <-over)
}

// TestAHandleIsClosedBesideAPause that comes while it waits for its calls.
func TestAHandleIsClosedBesideAPause(t *testing.T) {
	begun, ended, may := make(chan struct{}), make(chan struct{}), make(chan struct{})
	own := func(*wisbox.Session) []tool.Tool {
		return []tool.Tool{tool.New(tool.Spec{Name: "shout", Description: "Stay"}, func(ctx context.Context, p shout) (shout, error) {
			close(begun)
			<-ctx.Done()
			close(ended)
			<-may
			return p, nil
		})}
	}
	m, _ := manager(t, wisbox.Options{Backend: &pausing{Backend: sandboxtest.NewHost()}, Tools: own})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	other, err := s.Clone(t.Context(), &wisbox.CloneOptions{Mode: wisbox.Shared})
	require.NoError(t, err)
	over, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(over)
		_, _ = call(t, s, "shout", `{"text":"stay"}`)
	}()
	<-begun
	go func() { closed <- s.Close(t.Context()) }()
	<-ended
	require.NoError(t, other.Pause(t.Context()))
	require.NoError(t, <-closed)
	close(may)
	<-over
	require.NoError(t, m.Close())
}

// TestAHandleThatIsMadeWhileTheManagerCloses is closed with it.
func TestAHandleThatIsMadeWhileTheManagerCloses(t *testing.T) {
	var m *wisbox.Manager
	closed := make(chan error, 1)
	handles := 0
	own := func(*wisbox.Session) []tool.Tool {
		if handles++; handles == 2 {
			go func() { closed <- m.Close() }()
			require.Eventually(t, func() bool { return m.Stats().Sessions == 0 }, 30*time.Second, time.Millisecond)
		}
		return nil
	}
	m, _ = manager(t, wisbox.Options{Backend: sandboxtest.NewHost(), Tools: own})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.Clone(t.Context(), &wisbox.CloneOptions{Mode: wisbox.Shared})
	assert.Equal(t, tool.Closed, tool.KindOf(err), "%v", err)
	require.NoError(t, <-closed)
}

// TestHandlesOnAPausedSessionAreClosedOneByOne: only the last one gives up the sandbox.
func TestHandlesOnAPausedSessionAreClosedOneByOne(t *testing.T) {
	b := &pausing{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	other, err := s.Clone(t.Context(), &wisbox.CloneOptions{Mode: wisbox.Shared})
	require.NoError(t, err)
	first, second := underWay(t, t.Context(), s), underWay(t, t.Context(), other)
	require.NoError(t, s.Pause(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	assert.Empty(t, first, "its program is paused")
	require.NoError(t, m.Close())
	assert.Equal(t, sandbox.StatusCancelled, <-first)
	assert.Equal(t, sandbox.StatusCancelled, <-second)
	_, err = other.Clone(t.Context(), &wisbox.CloneOptions{Mode: wisbox.Shared})
	assert.Equal(t, tool.Closed, tool.KindOf(err))
}

// TestAHolderOfAPausedSessionEndsWithACallUnderWay, and the next one lets the programs go on.
func TestAHolderOfAPausedSessionEndsWithACallUnderWay(t *testing.T) {
	b := &pausing{Backend: sandboxtest.NewHost()}
	s, m, ended := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{Backend: b})
	ctx, cancel := context.WithCancel(t.Context())
	over := underWay(t, ctx, s)
	require.NoError(t, s.Pause(t.Context()))
	cancel() // the client leaves; its call stays
	assert.Equal(t, sandbox.StatusCancelled, <-over)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, m.Remove(t.Context(), "box"))
	require.NoError(t, <-ended)
	left, err := b.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, left, 1, "paused it is left; who removes the session removes it, in this test from another backend")
	require.NoError(t, b.Remove(t.Context(), "box"))
}

// TestAResetAndAPauseExcludeEachOther, because a reset would cancel calls that can't end.
func TestAResetAndAPauseExcludeEachOther(t *testing.T) {
	pauses, may := make(chan struct{}), make(chan struct{})
	b := &pausing{Backend: sandboxtest.NewHost()}
	b.meet = func(_ context.Context, what string) error {
		if what == "pause" {
			close(pauses)
			<-may
		}
		return nil
	}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	over := underWay(t, t.Context(), s)
	paused, reset := make(chan error, 1), make(chan error, 1)
	go func() { paused <- s.Pause(t.Context()) }()
	<-pauses
	go func() { reset <- s.Reset(t.Context()) }()
	close(may)
	require.NoError(t, <-paused)
	require.Error(t, <-reset)
	assert.Empty(t, over, "the reset ended nothing")
	_, err = s.Resume(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Reset(t.Context()))
	assert.NotEmpty(t, <-over)
	require.NoError(t, s.Close(t.Context()))
}

// beginning calls began with the name of each span.
type beginning struct {
	noop.TracerProvider
	began func(name string)
}

func (b beginning) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return beginningTracer{began: b.began}
}

type beginningTracer struct {
	noop.Tracer
	began func(name string)
}

func (b beginningTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	b.began(name)
	return b.Tracer.Start(ctx, name, opts...)
}

// TestAResetWaitsForAPauseThatBegins, and leaves the paused session alone.
func TestAResetWaitsForAPauseThatBegins(t *testing.T) {
	pauses, resets, may := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begins := sync.OnceFunc(func() { close(resets) })
	b := &pausing{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b, TracerProvider: beginning{began: func(name string) {
		if name == "wisbox reset" {
			begins()
		}
	}}})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Kept: true, Name: "box"})
	require.NoError(t, err)
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	s, err = m.Attach(t.Context(), "box")
	require.NoError(t, err)
	b.opens = sync.OnceFunc(func() { close(pauses); <-may }) // before the pause is recorded
	paused, reset := make(chan error, 1), make(chan error, 1)
	go func() { paused <- s.Pause(t.Context()) }()
	<-pauses
	go func() { reset <- s.Reset(t.Context()) }()
	<-resets
	close(may)
	require.NoError(t, <-paused)
	err = <-reset
	assert.Equal(t, tool.Unavailable, tool.KindOf(err), "%v", err)
	_, err = s.Resume(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Reset(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, m.Remove(t.Context(), "box"))
}

// TestAResetEndsASnapshotThatHasProgramsStandStill, however long that takes.
func TestAResetEndsASnapshotThatHasProgramsStandStill(t *testing.T) {
	begun := make(chan struct{})
	b := &pausing{Backend: sandboxtest.NewHost()}
	b.meet = func(ctx context.Context, what string) error {
		if what == "pause" {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	snapshot := make(chan error, 1)
	go func() {
		_, err := call(t, s, "snapshot_create", `{"quiesce":true}`)
		snapshot <- err
	}()
	<-begun
	require.NoError(t, s.Reset(t.Context()))
	require.Error(t, <-snapshot)
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
}

// TestAPauseAndAResumeAreMadeWholeWithoutTheirCaller.
func TestAPauseAndAResumeAreMadeWholeWithoutTheirCaller(t *testing.T) {
	b := &pausing{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	state := func() string {
		in, err := s.Inspect(t.Context())
		require.NoError(t, err)
		return in.State
	}
	leaving := func(do func(context.Context) error) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b.meet = func(context.Context, string) error { cancel(); return nil }
		return do(ctx)
	}
	require.NoError(t, leaving(s.Pause))
	assert.Equal(t, "paused", state())
	assert.NotNil(t, b.standing(s.ID()))
	require.NoError(t, leaving(func(ctx context.Context) error { _, err := s.Resume(ctx); return err }))
	assert.Equal(t, "ready", state())
	assert.Nil(t, b.standing(s.ID()))
	require.NoError(t, s.Close(t.Context()))
}

// TestTheRecordSaysWhatTheContainerDoes after a failed pause and a failed resume.
func TestTheRecordSaysWhatTheContainerDoes(t *testing.T) {
	b := &pausing{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	runs := func() error {
		_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		return err
	}
	require.NoError(t, runs())
	fault := errors.New("the freezer is busy")
	b.meet = func(context.Context, string) error { return fault }
	require.Error(t, s.Pause(t.Context()))
	require.NoError(t, runs(), "it isn't paused")

	b.meet = func(context.Context, string) error { b.stand(s.ID()); return fault }
	require.Error(t, s.Pause(t.Context()))
	assert.Equal(t, tool.Unavailable, tool.KindOf(runs()), "it is paused all the same")
	b.meet = nil
	_, err = s.Resume(t.Context())
	require.NoError(t, err)
	require.NoError(t, runs())

	require.NoError(t, s.Pause(t.Context()))
	b.meet = func(context.Context, string) error { return fault }
	_, err = s.Resume(t.Context())
	require.Error(t, err)
	assert.Equal(t, tool.Unavailable, tool.KindOf(runs()), "it is frozen and paused")

	b.meet = func(context.Context, string) error { b.wake(s.ID()); return fault }
	done, err := s.Resume(t.Context())
	require.NoError(t, err, "it runs all the same")
	assert.False(t, done.Lost)
	require.NoError(t, runs())

	b.meet = nil
	require.NoError(t, s.Pause(t.Context()))
	b.meet = func(context.Context, string) error { return errors.Join(b.Remove(t.Context(), s.ID()), fault) }
	done, err = s.Resume(t.Context())
	require.NoError(t, err)
	assert.True(t, done.Lost)
	b.wake(s.ID())
	require.NoError(t, runs())
	require.NoError(t, s.Close(t.Context()))
}
