// Package keeper is the common part of evaltool.Engines that keep interpreters between evaluations:
// it keeps one for each sandbox and context. The first evaluation starts it, and others wait for the
// start. The package of a language starts its interpreters and sends code to them: see
// evaltool/python, evaltool/bash and evaltool/javascript.
package keeper

import (
	"context"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/internal/kept"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
)

// Interpreter is a kept interpreter. Its methods are called by one goroutine at a time.
type Interpreter interface {
	// Evaluate runs code. It reports whether the interpreter, with its names, is still alive.
	Evaluate(ctx context.Context, req evaltool.Request) (resp evaltool.Response, alive bool, err error)
	// Ended reports whether the interpreter has ended by itself.
	Ended() bool
	Kill()
}

// Options configure a Keeper. All are required.
type Options struct {
	// Start starts an interpreter for a request, which it doesn't evaluate. Its errors may
	// be those of package sandbox.
	Start func(ctx context.Context, req evaltool.Request) (Interpreter, error)
	// Lost is the note for an evaluation whose interpreter had ended since the last one.
	Lost string
}

// Keeper holds the interpreters of an engine. Its methods may be called concurrently.
type Keeper struct {
	opts Options
	kept *kept.Table[slot, Interpreter]
}

// slot identifies an interpreter; each sandbox has its own names.
type slot struct{ sandbox, context string }

// New returns a Keeper. It starts nothing.
func New(opts *Options) *Keeper {
	return &Keeper{opts: *opts, kept: kept.New[slot](func(live *Interpreter) {
		if *live != nil {
			(*live).Kill()
		}
	})}
}

// Evaluate implements evaltool.Engine.
func (k *Keeper) Evaluate(ctx context.Context, req evaltool.Request) (resp evaltool.Response, err error) {
	err = k.kept.Do(ctx, slot{req.Sandbox, req.Context}, func(ctx context.Context, live *Interpreter) error {
		notes, err := k.ready(ctx, live, req)
		if err != nil {
			resp, err = evaltool.NotStarted(ctx, toolerr.Of(err))
			resp.Notes = notes
			return err
		}
		defer req.Feed.ReleaseAfter(ctx, req.Timeout)()
		var alive bool
		if resp, alive, err = (*live).Evaluate(ctx, req); !alive {
			*live = nil
		}
		resp.Notes = append(notes, resp.Notes...)
		return err
	})
	return resp, err
}

// ready starts an interpreter if none lives, and returns a note if the last one has ended.
func (k *Keeper) ready(ctx context.Context, live *Interpreter, req evaltool.Request) (notes []string, err error) {
	if *live != nil && (*live).Ended() {
		*live = nil
		notes = []string{k.opts.Lost}
	}
	if *live != nil {
		return notes, nil
	}
	begun, err := k.opts.Start(ctx, req)
	if err == nil {
		*live = begun
	}
	return notes, err
}

// Busy reports whether an interpreter evaluates right now.
func (k *Keeper) Busy() bool { return k.kept.Busy() }

// Cancel implements evaltool.Resetter.
func (k *Keeper) Cancel(context string) {
	k.kept.Cancel(func(s slot) bool { return s.context == context })
}

// Reset implements evaltool.Resetter: it waits for a running evaluation and forgets the names of the context, in every
// sandbox.
func (k *Keeper) Reset(ctx context.Context, context string) error {
	return k.kept.Reset(ctx, func(s slot) bool { return s.context == context })
}

// Close implements evaltool.Resetter. It cancels a running evaluation.
func (k *Keeper) Close() error { return k.kept.Close() }

// Process is a program that evaluates, with the streams of its output.
type Process struct {
	*interp.Process[*evaltool.Stream]
	Count int64 // evaluations
}

// Start starts a program for a request. maxAnswer bounds its answers, in bytes.
func Start(ctx context.Context, runner func(context.Context) (sandbox.Runner, error), cmd sandbox.Cmd, maxAnswer uint32, req evaltool.Request) (*Process, error) {
	r, err := runner(ctx)
	if err != nil {
		return nil, err
	}
	cmd.Env = evaltool.Environ(req.ContextEnv)
	p, err := interp.Start(ctx, r, cmd, maxAnswer, func() *evaltool.Stream { return &evaltool.Stream{Max: req.MaxOutput} })
	if err != nil {
		return nil, err
	}
	return &Process{Process: p}, nil
}

// Begin counts an evaluation, and connects its output to a feed, which may be nil.
func (p *Process) Begin(feed *evaltool.Feed) {
	p.Count++
	if feed == nil {
		return
	}
	feed.Put(evaltool.Part{Count: p.Count})
	p.Streams(func(stdout, stderr *evaltool.Stream) {
		stdout.Follow(feed.Stdout())
		stderr.Follow(feed.Stderr())
	})
}
