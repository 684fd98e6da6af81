// Package lisp implements evaluate-lisp and its related tools: Common Lisp in an SBCL that lives as long as its
// session, so that definitions stay. The first call that needs SBCL starts it, in the session's container like any
// other program, with a driver (package driver).
//
// The container is the security boundary, not this package. The driver shares its process with the evaluated code, so
// its answers are treated as hostile input: bounded, checked, and never trusted with more than the code could do
// anyway. If SBCL dies, the next call starts another one and reports that.
package lisp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/wisbox/wisbox/evaltool/lisp/driver"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Options configure a Lisp.
type Options struct {
	// Runner returns the runner of programs, and creates it on first use. Its errors wrap those of package sandbox or
	// are *tool.Error. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
	// Awake is called before each request. If the session is paused it returns an error, which the caller gets. Nil
	// means that the session is never paused.
	Awake func() error
	// Memory of the sandbox in bytes, default 1 GiB: Lisp's heap takes half of it.
	Memory int64
	// Record is a file outside of any workspace that stores the source of the session's top-level definitions; ""
	// stores none. If the file exists when SBCL is first started, the definitions are made again: for a clone, which
	// begins with a copy of another session's file, and for a kept session that is opened again.
	Record string
	// Logger gets one line for each start and end of SBCL, at debug; nil logs nothing.
	Logger *slog.Logger
}

// Lisp holds the tools of one session and their SBCL. Its methods may be called concurrently: evaluations wait for each
// other.
type Lisp struct {
	opts   Options
	core   string          // the saved core to look for
	life   context.Context // ends with Close
	cancel context.CancelFunc

	evaluating *lock.Mutex // held during an evaluation or a reset; guards the fields below
	live       *process    // nil before the first call and after SBCL's end
	started    bool        // SBCL was started before
	lost       bool        // SBCL has ended, and no call has reported that yet
	defs       record

	mu      sync.Mutex // guards the fields below
	limits  limits
	failure *Condition // the last one
}

// New returns a Lisp. It starts nothing.
func New(opts *Options) *Lisp {
	l := &Lisp{opts: *opts, core: driver.Core(), evaluating: lock.New(), limits: defaultLimits}
	if l.opts.Memory <= 0 {
		l.opts.Memory = sandbox.Limits{}.WithDefaults().Memory
	}
	if l.opts.Awake == nil {
		l.opts.Awake = func() error { return nil }
	}
	if l.opts.Logger == nil {
		l.opts.Logger = slog.New(slog.DiscardHandler)
	}
	l.defs.path = opts.Record
	l.life, l.cancel = context.WithCancel(context.Background())
	return l
}

// Busy reports whether an evaluation is running.
func (l *Lisp) Busy() bool { return l.evaluating.Held() }

// Close cancels a running evaluation, ends SBCL and returns when it is gone. It refuses later calls.
func (l *Lisp) Close() error {
	l.cancel()
	if err := l.evaluating.Lock(context.Background()); err != nil {
		return err
	}
	defer l.evaluating.Unlock()
	l.end()
	return nil
}

// end ends SBCL. The caller holds evaluating.
func (l *Lisp) end() {
	if l.live != nil {
		l.live.Kill()
		l.opts.Logger.Debug("lisp.end", slog.String("event", "lisp.end"))
	}
	l.live, l.lost = nil, false
}

func (l *Lisp) take(ctx context.Context) error {
	if err := l.evaluating.Lock(ctx); err != nil {
		return tool.AsError(err)
	}
	if l.life.Err() != nil {
		l.evaluating.Unlock()
		return tool.Errorf(tool.Closed, "the session is closed")
	}
	return nil
}

const (
	lostNote   = "Lisp had ended since the last call and was started again: its definitions are lost"
	madeNote   = "Lisp was restarted: %d recorded definitions were made again; values that were set after their definition are not"
	leftNote   = "%d more recorded definitions were not made again: the others took the time of an evaluation, or too many failed"
	failedNote = "this recorded definition could not be made again: "
)

// ask sends one request to SBCL, and starts it if necessary.
func (l *Lisp) ask(ctx context.Context, r request) (*reply, error) {
	if err := l.opts.Awake(); err != nil { // first, or it would wait for a paused evaluation
		return nil, err
	}
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	defer l.evaluating.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	notes, err := l.ready(ctx)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	rep, err := l.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(rep.Definitions) > 0 {
		l.save()
	}
	rep.notes = append(notes, rep.notes...)
	return rep, nil
}

// ready starts SBCL if it isn't running.
func (l *Lisp) ready(ctx context.Context) (notes []string, err error) {
	if l.live != nil && l.live.Ended() {
		l.drop()
	}
	if l.live == nil {
		if l.live, err = start(ctx, l.opts.Runner, l.core, l.opts.Memory); err != nil {
			return nil, err
		}
		l.opts.Logger.DebugContext(ctx, "lisp.start", slog.String("event", "lisp.start"), slog.Bool("again", l.lost))
	}
	if !l.started {
		if notes, err = l.restore(ctx); err != nil {
			return nil, err
		}
		l.started = true
	}
	if l.lost {
		notes, l.lost = append(notes, lostNote), false
	}
	return notes, nil
}

// drop forgets an SBCL that has ended, and its definitions.
func (l *Lisp) drop() {
	l.live, l.lost = nil, true
	l.forget()
}

func (l *Lisp) forget() {
	l.defs.clear()
	l.save()
}

// maxFailed is how many recorded definitions may fail before the rest are skipped.
const maxFailed = 100

// save ignores errors: they cost a clone its definitions, but must not fail a call.
func (l *Lisp) save() {
	if err := l.defs.save(); err != nil {
		l.opts.Logger.Warn("lisp.record", slog.String("event", "lisp.record"), slog.Any("error", err))
	}
}

// restore makes the recorded definitions. In total they may take as long as one evaluation, because a record is
// untrusted. If the caller cancels, the next call begins again.
func (l *Lisp) restore(ctx context.Context) (notes []string, err error) {
	begun := record{path: l.defs.path}
	if err := begun.load(); err != nil {
		l.opts.Logger.Warn("lisp.record", slog.String("event", "lisp.record"), slog.Any("error", err))
	}
	made, tried := 0, 0
	r := l.request(opEvaluate)
	end := time.Now().Add(cmp.Or(r.timeout, defaultLimits.timeout))
	for _, d := range begun.defs {
		if r.timeout = time.Until(end); r.timeout <= 0 || len(notes) == maxFailed {
			break
		}
		tried++
		r.Code, r.Package = d.Source, d.Package
		rep, err := l.send(ctx, r)
		if ctx.Err() != nil {
			return nil, toolerr.Of(ctx.Err())
		}
		if l.live == nil {
			return append(notes, failedNote+d.Name), nil
		}
		if err == nil && rep.status == StatusOK {
			made++
		} else {
			notes = append(notes, failedNote+d.Name)
		}
	}
	if left := len(begun.defs) - tried; left > 0 {
		notes = append(notes, fmt.Sprintf(leftNote, left))
	}
	if made > 0 {
		notes = append(notes, fmt.Sprintf(madeNote, made))
		l.save()
	}
	return notes, nil
}

// send sends one request and stores the changes to the session's state.
func (l *Lisp) send(ctx context.Context, r request) (*reply, error) {
	rep, err := l.live.ask(ctx, r)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	if rep.status == StatusEnded {
		l.drop()
	}
	l.defs.add(rep.Definitions)
	if rep.Error != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failure = rep.Error
	}
	return rep, nil
}
