package python

import (
	"context"
	"maps"
	"slices"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/tool"
)

// slot is which kept interpreter: names of one sandbox are not those of another.
type slot struct {
	sandbox string
	context string
}

// keeper owns the interpreter of one slot: one at a time, one evaluation at a
// time.
type keeper struct {
	engine *Engine
	slot   slot
	life   context.Context // ends with Close
	cancel context.CancelFunc
	turn   chan struct{} // holds a token while an evaluation or a reset is on

	// guarded by turn
	live *interpreter // nil before the first call and after its end
	gone bool         // forgotten by the engine: take another keeper
}

func (e *Engine) keeper(s slot) (*keeper, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k := e.kept[s]; k != nil {
		return k, nil
	}
	if len(e.kept) >= MaxContexts {
		return nil, tool.Errorf(tool.Limit, "there are %d kept interpreters, which is the limit; reset one", MaxContexts).In("context")
	}
	k := &keeper{engine: e, slot: s, turn: make(chan struct{}, 1)}
	k.life, k.cancel = context.WithCancel(context.Background())
	e.kept[s] = k
	return k, nil
}

func (k *keeper) take(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return tool.AsError(ctx.Err())
	}
}

func (k *keeper) release() { <-k.turn }

// evaluate is one evaluation; the bool is false when the keeper is gone and
// another one must be asked.
func (k *keeper) evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, bool, error) {
	if err := k.take(ctx); err != nil {
		return evaltool.Response{}, true, err
	}
	defer k.release()
	if k.gone {
		return evaltool.Response{}, false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.life, cancel)()
	notes, err := k.ready(ctx)
	if err != nil {
		return evaltool.Response{}, true, toolerr.Of(err)
	}
	resp, alive, err := k.live.evaluate(ctx, req)
	if !alive {
		k.live = nil
	}
	resp.Notes = append(notes, resp.Notes...)
	return resp, true, err
}

// ready makes sure that an interpreter lives and says when the last one has
// ended since its last call.
func (k *keeper) ready(ctx context.Context) (notes []string, err error) {
	if k.live != nil && k.live.Ended() {
		k.live = nil
		notes = append(notes, "the kept interpreter had ended since the last call: its names are lost and a new one was started")
	}
	if k.live == nil {
		k.live, err = startInterpreter(ctx, k.engine.runner)
	}
	return notes, err
}

// end ends the interpreter and has the engine forget the keeper.
func (k *keeper) end(ctx context.Context) error {
	if err := k.take(ctx); err != nil {
		return err
	}
	defer k.release()
	if k.live != nil {
		k.live.Kill()
	}
	k.live, k.gone = nil, true
	k.cancel()
	k.engine.forget(k)
	return nil
}

func (e *Engine) forget(k *keeper) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kept[k.slot] == k {
		delete(e.kept, k.slot)
	}
}

func (e *Engine) keepers() []*keeper {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.kept))
}

// Busy tells whether a kept interpreter evaluates right now.
func (e *Engine) Busy() bool {
	return slices.ContainsFunc(e.keepers(), func(k *keeper) bool { return len(k.turn) > 0 })
}

// Reset implements evaltool.Resetter: it waits for an evaluation that is on and
// forgets the names of the context, in every sandbox.
func (e *Engine) Reset(ctx context.Context, context string) error {
	for _, k := range e.keepers() {
		if k.slot.context != context {
			continue
		}
		if err := k.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close implements evaltool.Resetter. An evaluation that is on is cancelled.
func (e *Engine) Close() error {
	for _, k := range e.keepers() {
		k.cancel()
		if err := k.end(context.Background()); err != nil {
			return err
		}
	}
	return nil
}
