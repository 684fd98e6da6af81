// Package box is a session's sandbox: made when its first program needs it, made
// again when it was lost, guarded against programs that outlive their end, with
// secrets covered in their streams and the disk's limit watched.
package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Options are what a Box is made with. Make is required.
type Options struct {
	// Make opens or creates the sandbox.
	Make func(context.Context) (sandbox.Sandbox, error)
	// Log; default none.
	Log *slog.Logger
	// Tracer gets a span for each sandbox that is made and each program; default none.
	Tracer trace.Tracer
	// Awake is asked before a program, and before the sandbox is made: its error, where
	// the session is paused, is the caller's. Default: it always is. It may not call the Box.
	Awake func() error
	// Stood is how long the session's programs have stood still by its record, in all;
	// default never.
	Stood func() time.Duration
	// Ended is called when a program that outlived its call has ended, with its
	// [sandbox.Status]; default nothing.
	Ended func(verdict string)
}

// Box is a [sandbox.Runner]. Its methods may be called from many goroutines at
// once; one of them makes the sandbox, the others wait.
type Box struct {
	opts  Options
	still stillness
	letGo atomic.Bool // the sandbox was given up while it stood still

	mu       *lock.Mutex // guards what follows
	cur      sandbox.Sandbox
	ending   bool // no pause begins any more
	fit      Fitting
	prepared bool   // fit.Prepare was called for cur,
	since    uint64 // when it was of this generation, see [sandbox.Renewer]
}

// Fitting is what a session adds to each of its sandboxes. Nil functions add nothing.
// They may not call the Box.
type Fitting struct {
	// Prepare is called with a sandbox before its first program, and once more where the
	// sandbox was started again meanwhile.
	Prepare func(context.Context, sandbox.Sandbox) error
	// Env are variables for each program, before its own.
	Env func() []string
	// Left is called with a sandbox that this process gives up, or that was started again.
	Left func(sandbox.Sandbox)
}

// New makes a Box without a sandbox.
func New(opts *Options) *Box {
	b := &Box{opts: *opts, mu: lock.New()}
	if b.opts.Log == nil {
		b.opts.Log = slog.New(slog.DiscardHandler)
	}
	if b.opts.Tracer == nil {
		b.opts.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if b.opts.Awake == nil {
		b.opts.Awake = func() error { return nil }
	}
	if b.opts.Stood == nil {
		b.opts.Stood = func() time.Duration { return 0 }
	}
	return b
}

// Get returns the sandbox and makes it where there is none.
func (b *Box) Get(ctx context.Context) (sandbox.Sandbox, error) {
	if err := b.mu.Lock(ctx); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	if err := b.opts.Awake(); err != nil {
		return nil, err
	}
	if b.cur == nil {
		making, span := b.opts.Tracer.Start(ctx, "wisbox container")
		sb, err := b.opts.Make(making)
		span.End()
		if err != nil {
			return nil, err
		}
		b.cur, b.prepared = sb, false
	}
	return b.cur, b.prepare(ctx)
}

// prepare makes the sandbox ready, once for each time that it was started. mu is held.
func (b *Box) prepare(ctx context.Context) error {
	if b.fit.Prepare == nil {
		return nil
	}
	now, err := generation(ctx, b.cur)
	if err != nil || b.prepared && now == b.since {
		return err
	}
	if b.prepared && b.fit.Left != nil {
		b.fit.Left(b.cur)
	}
	b.prepared = false
	if err := b.fit.Prepare(ctx, b.cur); err != nil {
		return err
	}
	b.prepared, b.since = true, now
	return nil
}

func generation(ctx context.Context, sb sandbox.Sandbox) (uint64, error) {
	if r, ok := sandbox.As[sandbox.Renewer](sb); ok {
		return r.Generation(ctx)
	}
	return 0, nil
}

// Fit sets what the sandboxes get: the one that is there before the next program.
func (b *Box) Fit(ctx context.Context, f Fitting) error {
	if err := b.mu.Lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	b.fit, b.prepared = f, false
	return nil
}

// Ready prepares the sandbox now, where there is one that isn't paused.
func (b *Box) Ready(ctx context.Context) error {
	if err := b.mu.Lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.cur == nil {
		return nil
	}
	b.prepared = false
	if b.opts.Awake() != nil {
		return nil // the next program's call does it
	}
	return toolerr.Of(b.prepare(ctx))
}

// equipped is a program with the session's variables.
func (b *Box) equipped(cmd sandbox.Cmd) sandbox.Cmd {
	_ = b.mu.Lock(context.Background())
	env := b.fit.Env
	b.mu.Unlock()
	if env != nil {
		cmd.Env = slices.Concat(env(), cmd.Env)
	}
	return cmd
}

// left forgets the sandbox. mu is held.
func (b *Box) left() sandbox.Sandbox {
	sb := b.cur
	b.cur = nil
	if b.fit.Left != nil {
		b.fit.Left(sb)
	}
	return sb
}

// Peek returns the sandbox, nil where there is none.
func (b *Box) Peek(ctx context.Context) (sandbox.Sandbox, error) {
	if err := b.mu.Lock(ctx); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	return b.cur, nil
}

// DropGrace bounds the removal of a lost sandbox, whose caller may be gone.
const DropGrace = 30 * time.Second

// drop gives up a lost sandbox, unless another call did so already, and reports whether
// it is gone. In a paused session it stays: one that stands still doesn't answer, and
// whether it is lost the resume finds out.
func (b *Box) drop(ctx context.Context, lost sandbox.Sandbox) (gone bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DropGrace)
	defer cancel()
	if b.mu.Lock(ctx) != nil {
		return false
	}
	defer b.mu.Unlock()
	if b.cur != lost {
		return true
	}
	if b.opts.Awake() != nil {
		return false
	}
	if err := b.left().Close(ctx); err != nil {
		b.opts.Log.Warn("remove a lost sandbox", "error", err)
	}
	return true
}

// Run implements sandbox.Runner. A sandbox that was lost before the program
// began is made again, once.
func (b *Box) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (sandbox.Result, bool, error) {
		guard := b.watch(ctx, sb, cmd.Timeout)
		ctx, end := b.programSpan(ctx)
		res, err := sb.Run(ctx, b.equipped(cmd))
		end(res)
		lost := res.Status == sandbox.StatusSandboxLost
		return guard.end(ctx, res), lost, err
	})
}

// Start implements sandbox.Runner, as Run does.
func (b *Box) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (sandbox.Process, bool, error) {
		ended := b.outliving(ctx, cmd)
		p, err := sb.Start(ctx, b.equipped(startable(sb, cmd)))
		if err != nil {
			ended(sandbox.Result{})
			return nil, false, err
		}
		return b.guarded(sb, p, cmd, ended), false, nil
	})
}

// HasProgram implements [sandbox.ProgramFinder] where the sandbox does.
func (b *Box) HasProgram(ctx context.Context, name string) (bool, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (bool, bool, error) {
		finder, ok := sandbox.As[sandbox.ProgramFinder](sb)
		if !ok {
			return false, false, fmt.Errorf("%w: nobody looked for programs", sandbox.ErrUnsupported)
		}
		has, err := finder.HasProgram(ctx, name)
		return has, false, err
	})
}

// Listens implements [sandbox.PortFinder] where the sandbox does.
func (b *Box) Listens(ctx context.Context, port uint16) (bool, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (bool, bool, error) {
		finder, ok := sandbox.As[sandbox.PortFinder](sb)
		if !ok {
			return false, false, fmt.Errorf("%w: nobody can look at the sandbox's ports", sandbox.ErrUnsupported)
		}
		listens, err := finder.Listens(ctx, port)
		return listens, false, err
	})
}

// Files works on the sandbox's files, and makes it where there is none. Where the sandbox
// turns out to be lost before do has read or written anything, do is called once more:
// touched says whether it has.
func (b *Box) Files(ctx context.Context, touched func() bool, do func(sandbox.FileSystem) error) error {
	_, err := attempt(ctx, b, func(sb sandbox.Sandbox) (struct{}, bool, error) {
		on, ok := sandbox.As[sandbox.FileSystem](sb)
		if !ok {
			return struct{}{}, false, fmt.Errorf("%w: its files can't be worked on from inside", sandbox.ErrUnsupported)
		}
		err := do(on)
		lost := errors.Is(err, sandbox.ErrLost)
		if lost && touched() { // without the cause it is not done again
			said := *tool.AsError(toolerr.Of(err))
			err = said.Because(nil)
		}
		return struct{}{}, lost, err
	})
	return err
}

// programSpan begins the span of a program; the returned function ends it.
func (b *Box) programSpan(ctx context.Context) (context.Context, func(sandbox.Result)) {
	ctx, span := b.opts.Tracer.Start(ctx, "wisbox program")
	return ctx, func(res sandbox.Result) {
		span.SetAttributes(attribute.String("wisbox.verdict", string(res.Status)), attribute.Int("wisbox.exit_code", res.ExitCode))
		span.End()
	}
}

// outliving returns what to call when a program ends that lives on after its
// call. One with a private channel is an interpreter that a tool keeps for
// itself: it isn't counted.
func (b *Box) outliving(ctx context.Context, cmd sandbox.Cmd) (ended func(sandbox.Result)) {
	if cmd.Control != nil || cmd.Python != nil {
		return func(sandbox.Result) {}
	}
	_, end := b.programSpan(ctx)
	return func(res sandbox.Result) {
		end(res)
		if b.opts.Ended != nil && res.Status != "" {
			b.opts.Ended(string(res.Status))
		}
	}
}

func attempt[T any](ctx context.Context, b *Box, do func(sandbox.Sandbox) (T, bool, error)) (T, error) {
	var none T
	for again := true; ; again = false {
		var out T
		var lost bool
		sb, err := b.Get(ctx)
		if err == nil {
			out, lost, err = do(sb)
		}
		if sb == nil {
			return none, toolerr.Of(err)
		}
		if lost || errors.Is(err, sandbox.ErrLost) {
			b.drop(ctx, sb)
		}
		if errors.Is(err, sandbox.ErrLost) && again {
			b.opts.Log.Info("sandbox lost, making it again", "error", err)
			continue
		}
		return out, toolerr.Of(err)
	}
}

// Close removes the sandbox; the next program has another one.
func (b *Box) Close(ctx context.Context) error {
	return b.end(ctx, func(sb sandbox.Sandbox) error { return sb.Close(ctx) })
}

// Detach leaves the sandbox for another process to open.
func (b *Box) Detach(ctx context.Context) error {
	return b.end(ctx, func(sb sandbox.Sandbox) error { return sb.Detach() })
}

func (b *Box) end(ctx context.Context, how func(sandbox.Sandbox) error) error {
	if err := b.mu.Lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.cur == nil {
		return nil
	}
	return toolerr.Of(how(b.left()))
}

// Activity is the processor time, in nanoseconds, that the session's programs have
// used, by whatever process they were started.
func (b *Box) Activity(ctx context.Context) (int64, error) {
	sb, err := b.Peek(ctx)
	if err != nil {
		return 0, err
	}
	timer, ok := sandbox.As[sandbox.CPUTimer](sb)
	if !ok {
		return 0, sandbox.ErrUnsupported
	}
	used, err := timer.CPUTime(ctx)
	return int64(used), err
}
