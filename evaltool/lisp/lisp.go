// Package lisp is evaluate-lisp and its tools: Common Lisp in one SBCL that
// lives as long as its session, so that definitions stay. SBCL runs in the
// session's container as a program like any other, with a driver of wisbox's own
// (package driver), and is started with the first call that needs it.
//
// It is not a boundary: the container is. The driver shares its process with the
// evaluated code, so its answers are read as hostile input: bounded, checked,
// and never trusted with more than the code could do anyway. When SBCL dies, for
// whatever reason, the next call starts another one and says so.
package lisp

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/wisbox/wisbox/evaltool/lisp/driver"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Options configure a Lisp.
type Options struct {
	// Runner gives what runs programs, and makes it on first use. Its errors wrap
	// those of package sandbox or are *tool.Error. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
	// Memory of the sandbox in bytes, default 1 GiB: Lisp's heap takes half of it.
	Memory int64
	// Record is a file outside of any workspace that keeps the definitions which
	// the session makes at top level, as their source; "" keeps none. They are
	// made again when SBCL is first started and the file is there already: for a
	// clone, which begins with a copy of another session's file, and for a kept
	// session that is opened again.
	Record string
	// Logger gets one line for each start and end of SBCL, at debug; nil logs nothing.
	Logger *slog.Logger
}

// Lisp is the tools of one session and the SBCL behind them. It may be used from
// many goroutines at once: evaluations wait for each other.
type Lisp struct {
	opts   Options
	core   string          // the saved core to look for
	life   context.Context // ends with Close
	cancel context.CancelFunc
	turn   chan struct{} // holds a token while an evaluation or a reset is on

	// guarded by turn
	live    *process // nil before the first call and after its end
	started bool     // there was one
	lost    bool     // a live one has ended and nobody was told
	defs    record

	mu      sync.Mutex // guards what follows
	limits  limits
	failure *Condition // the last one
}

// New makes a Lisp. It starts nothing.
func New(opts *Options) *Lisp {
	l := &Lisp{opts: *opts, core: driver.Core(), turn: make(chan struct{}, 1), limits: defaultLimits}
	if l.opts.Memory <= 0 {
		l.opts.Memory = sandbox.Limits{}.WithDefaults().Memory
	}
	if l.opts.Logger == nil {
		l.opts.Logger = slog.New(slog.DiscardHandler)
	}
	l.defs.path = opts.Record
	l.life, l.cancel = context.WithCancel(context.Background())
	return l
}

// Busy tells whether an evaluation is on right now.
func (l *Lisp) Busy() bool { return len(l.turn) > 0 }

// Close ends SBCL and returns when it is gone; an evaluation that is on is
// cancelled. Calls after it are refused.
func (l *Lisp) Close() error {
	l.cancel()
	l.turn <- struct{}{}
	defer l.release()
	l.end()
	return nil
}

// end needs the turn.
func (l *Lisp) end() {
	if l.live != nil {
		l.live.Kill()
		l.opts.Logger.Debug("lisp.end", slog.String("event", "lisp.end"))
	}
	l.live, l.lost = nil, false
}

func (l *Lisp) release() { <-l.turn }

func (l *Lisp) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return tool.AsError(ctx.Err())
	}
	if l.life.Err() != nil {
		l.release()
		return tool.Errorf(tool.Closed, "the session is closed")
	}
	return nil
}

const (
	lostNote   = "Lisp had ended since the last call and was started again: its definitions are lost"
	madeNote   = "Lisp was started anew: %d recorded definitions were made again; values that were set after their definition are not"
	failedNote = "this recorded definition could not be made again: "
)

// ask does one request on the live SBCL, which it starts where there is none.
func (l *Lisp) ask(ctx context.Context, r request) (*reply, error) {
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	defer l.release()
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

// ready makes sure that SBCL lives.
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
		l.started = true
		notes = l.restore(ctx)
	}
	if l.lost {
		notes, l.lost = append(notes, lostNote), false
	}
	return notes, nil
}

// drop forgets an SBCL that has ended, and what was defined in it.
func (l *Lisp) drop() {
	l.live, l.lost = nil, true
	l.forget()
}

func (l *Lisp) forget() {
	l.defs.clear()
	l.save()
}

// save costs a clone its definitions where it fails, not a call.
func (l *Lisp) save() {
	if err := l.defs.save(); err != nil {
		l.opts.Logger.Warn("lisp.record", slog.String("event", "lisp.record"), slog.Any("error", err))
	}
}

// restore makes the definitions that the session begins with.
func (l *Lisp) restore(ctx context.Context) (notes []string) {
	begun := record{path: l.defs.path}
	if err := begun.load(); err != nil {
		l.opts.Logger.Warn("lisp.record", slog.String("event", "lisp.record"), slog.Any("error", err))
	}
	made := 0
	for _, d := range begun.defs {
		r := l.request(opEvaluate)
		r.Code, r.Package = d.Source, d.Package
		rep, err := l.send(ctx, r)
		if l.live == nil {
			return append(notes, failedNote+d.Name)
		}
		if err == nil && rep.status == StatusOK {
			made++
		} else {
			notes = append(notes, failedNote+d.Name)
		}
	}
	if made > 0 {
		notes = append(notes, fmt.Sprintf(madeNote, made))
		l.save()
	}
	return notes
}

// send does one request and takes over what it changed.
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
