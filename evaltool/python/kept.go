package python

import (
	"context"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/kept"
)

// MaxContexts is how many kept interpreters one Engine has at a time.
const MaxContexts = kept.Max

// slot is which kept interpreter: names of one sandbox are not those of another.
type slot struct {
	sandbox string
	context string
}

// held is the interpreter of a slot.
type held struct {
	live *interpreter // nil before the first call and after its end
}

func newTable() *kept.Table[slot, held] {
	return kept.New[slot](func(h *held) {
		if h.live != nil {
			h.live.Kill()
		}
	})
}

func (e *Engine) evaluateKept(ctx context.Context, req evaltool.Request) (resp evaltool.Response, err error) {
	err = e.kept.Do(ctx, slot{req.Sandbox, req.Context}, func(ctx context.Context, h *held) error {
		notes, err := e.ready(ctx, h, req)
		if err != nil {
			resp, err = evaltool.NotStarted(ctx, noPython(err))
			resp.Notes = notes
			return err
		}
		defer req.Feed.ReleaseAfter(ctx, req.Timeout)()
		var alive bool
		if resp, alive, err = h.live.evaluate(ctx, req); !alive {
			h.live = nil
		}
		resp.Notes = append(notes, resp.Notes...)
		return err
	})
	return resp, err
}

// ready makes sure that an interpreter lives and says when the last one has
// ended since its last call.
func (e *Engine) ready(ctx context.Context, h *held, req evaltool.Request) (notes []string, err error) {
	if h.live != nil && h.live.Ended() {
		h.live = nil
		notes = append(notes, "the kept interpreter had ended since the last call: its names are lost and a new one was started")
	}
	if h.live == nil {
		h.live, err = startInterpreter(ctx, e.runner, req)
	}
	return notes, err
}

// Busy reports whether a kept interpreter evaluates right now.
func (e *Engine) Busy() bool { return e.kept.Busy() }

// Cancel implements evaltool.Resetter.
func (e *Engine) Cancel(context string) {
	e.kept.Cancel(func(s slot) bool { return s.context == context })
}

// Reset implements evaltool.Resetter: it waits for an evaluation that is on and
// forgets the names of the context, in every sandbox.
func (e *Engine) Reset(ctx context.Context, context string) error {
	return e.kept.Reset(ctx, func(s slot) bool { return s.context == context })
}

// Close implements evaltool.Resetter. An evaluation that is on is cancelled.
func (e *Engine) Close() error { return e.kept.Close() }
