package mcpserver

import (
	"context"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A message with a task's result can be as large as all of a client's results together, and the answers to a list of
// messages wait for one another in memory. So only a few such messages are created at once, and no more until they have
// been read.

const (
	fetchMethod = "tasks/get"
	fetchWeight = maxUnansweredB / 8 // bytes that such a request on a pipe counts as
	maxFetches  = 4                  // maximum at once over HTTP, per owner; as many lists of messages
	maxBatch    = 16                 // messages of a list
)

// turns limits the number of messages that are created at once.
type turns chan struct{}

func (t turns) take(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// turnsKey says whose turns they are: those of lists, whose calls may take long, or the others.
type turnsKey struct {
	owner string
	list  bool
}

// turnTable has the turns of all owners that use some.
type turnTable struct {
	mu  sync.Mutex
	all map[turnsKey]*usedTurns
}

// usedTurns are turns with the number of messages that have or want one.
type usedTurns struct {
	turns
	users int
}

// take is like [turns.take], for one owner. Turns that nobody uses are forgotten.
func (t *turnTable) take(ctx context.Context, key turnsKey) (leave func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[turnsKey]*usedTurns{}
	}
	one := t.all[key]
	if one == nil {
		one = &usedTurns{turns: make(turns, maxFetches)}
		t.all[key] = one
	}
	one.users++
	t.mu.Unlock()
	done := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.all, key)
		}
	}
	free, err := one.turns.take(ctx)
	if err != nil {
		done()
		return nil, err
	}
	return func() { free(); done() }, nil
}

// takeTurn waits for a turn of the owner of a request.
func (h *HTTPHandler) takeTurn(r *http.Request, list bool) (leave func(), err error) {
	return h.turns.take(r.Context(), turnsKey{ownerFrom(withOwnerOf(r)), list})
}

// whenTaken sends results of tasks only after a pipe's client has read its earlier messages.
func whenTaken(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == fetchMethod {
			if err := awaitTaken(ctx); err != nil {
				return nil, err
			}
		}
		return next(ctx, method, req)
	}
}
