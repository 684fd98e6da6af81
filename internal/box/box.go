// Package box manages a session's sandbox: it creates the sandbox for the first program and
// again after a loss, guards against programs that outlive their end, replaces secrets in
// their streams with stars, and watches the disk limit.
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
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Options are options of [New]. Make is required.
type Options struct {
	// Make opens or creates the sandbox.
	Make func(context.Context) (sandbox.Sandbox, error)
	// Log is for messages; default none.
	Log *slog.Logger
	// Tracer gets a span for each sandbox that is made and each program; default none.
	Tracer trace.Tracer
	// Awake is called before a program starts and before the sandbox is created. If it returns an
	// error, such as that of a paused session, the call returns it. Default: always awake. It must
	// not call the Box.
	Awake func() error
	// Stood returns the total time for which the session's record says that programs were
	// frozen; default 0.
	Stood func() time.Duration
	// Ended is called when a program that outlived its call has ended, with its [sandbox.Status];
	// default nothing.
	Ended func(verdict string)
}

// Box is a [sandbox.Runner]. Its methods may be called from many goroutines at
// once; one of them creates the sandbox, the others wait.
type Box struct {
	opts  Options
	still stillness
	letGo atomic.Bool // the sandbox was given up while frozen

	programs atomic.Int64 // that run, interpreters included

	mu       *lock.Mutex // guards the fields below
	cur      sandbox.Sandbox
	ending   bool // no new pause may begin
	fit      Fitting
	prepared bool   // fit.Prepare was called for cur,
	since    uint64 // the sandbox's generation at that time, see [sandbox.Renewer]
}

// Fitting has the additions of a session to each of its sandboxes. Nil functions add nothing.
// They must not call the Box.
type Fitting struct {
	// Prepare is called with a sandbox before its first program, and again if the sandbox was
	// restarted.
	Prepare func(context.Context, sandbox.Sandbox) error
	// Env are variables for each program, before its own.
	Env func() []string
	// Left is called with a sandbox that this process gives up, or that was restarted.
	Left func(sandbox.Sandbox)
}

// New returns a Box without a sandbox.
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

// Busy reports whether a program runs.
func (b *Box) Busy() bool { return b.programs.Load() > 0 }

// Get returns the sandbox, and creates it if there is none.
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

// prepare prepares the sandbox, once for each of its starts. The caller must hold mu.
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

// Fit sets the additions to sandboxes. An existing sandbox gets them before the next program.
func (b *Box) Fit(ctx context.Context, f Fitting) error {
	if err := b.mu.Lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	b.fit, b.prepared = f, false
	return nil
}

// Ready prepares the sandbox now, if there is one that isn't paused.
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
		return nil // the next program's call prepares it
	}
	return toolerr.Of(b.prepare(ctx))
}

// equipped returns a program with the session's variables.
func (b *Box) equipped(cmd sandbox.Cmd) sandbox.Cmd {
	_ = b.mu.Lock(context.Background())
	env := b.fit.Env
	b.mu.Unlock()
	if env != nil {
		cmd.Env = slices.Concat(env(), cmd.Env)
	}
	return cmd
}

// left forgets the sandbox. The caller must hold mu.
func (b *Box) left() sandbox.Sandbox {
	sb := b.cur
	b.cur = nil
	if b.fit.Left != nil {
		b.fit.Left(sb)
	}
	return sb
}

// Peek returns the sandbox, or nil if there is none.
func (b *Box) Peek(ctx context.Context) (sandbox.Sandbox, error) {
	if err := b.mu.Lock(ctx); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	return b.cur, nil
}

// Alone calls do with the sandbox, or nil if there is none, while no other is created and this one isn't
// given up. do must not call the Box.
func (b *Box) Alone(ctx context.Context, do func(sandbox.Sandbox) error) error {
	if err := b.mu.Lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	return do(b.cur)
}

// DropGrace bounds the removal of a lost sandbox, whose caller may be gone.
var DropGrace = patience.For(30 * time.Second)

// drop gives up a lost sandbox, unless another call already did, and reports whether it is gone.
// In a paused session it keeps the sandbox: a frozen one doesn't answer, and the resume finds out
// whether it is lost.
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

// Run implements sandbox.Runner. If the sandbox was lost before the program began, it is created
// again, once.
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

// Start implements sandbox.Runner, like Run.
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

// HasProgram implements [sandbox.ProgramFinder] if the sandbox does.
func (b *Box) HasProgram(ctx context.Context, name string) (bool, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (bool, bool, error) {
		finder, ok := sandbox.As[sandbox.ProgramFinder](sb)
		if !ok {
			return false, false, fmt.Errorf("%w: it doesn't know its image's programs", sandbox.ErrUnsupported)
		}
		has, err := finder.HasProgram(ctx, name)
		return has, false, err
	})
}

// Listens implements [sandbox.PortFinder] if the sandbox does.
func (b *Box) Listens(ctx context.Context, port uint16) (bool, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (bool, bool, error) {
		finder, ok := sandbox.As[sandbox.PortFinder](sb)
		if !ok {
			return false, false, fmt.Errorf("%w: its ports can't be checked", sandbox.ErrUnsupported)
		}
		listens, err := finder.Listens(ctx, port)
		return listens, false, err
	})
}

// Files calls do with the sandbox's files, and creates the sandbox if there is none. If the sandbox
// turns out to be lost before do has read or written anything, as touched reports, it calls do
// again.
func (b *Box) Files(ctx context.Context, touched func() bool, do func(sandbox.FileSystem) error) error {
	_, err := attempt(ctx, b, func(sb sandbox.Sandbox) (struct{}, bool, error) {
		on, ok := sandbox.As[sandbox.FileSystem](sb)
		if !ok {
			return struct{}{}, false, fmt.Errorf("%w: its files can't be accessed from inside", sandbox.ErrUnsupported)
		}
		err := do(on)
		lost := errors.Is(err, sandbox.ErrLost)
		if lost && touched() { // without the cause, it isn't repeated
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

// outliving returns the function to call at the end of a program that outlives its call. A program
// with a private channel is an interpreter of a tool, and isn't counted.
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

// Activity returns the processor time, in nanoseconds, that the session's programs have
// used, whichever process started them.
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
