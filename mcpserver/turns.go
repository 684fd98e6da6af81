package mcpserver

import (
	"context"
	"net/http"

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

// turnsOf returns the turns of the owner of a request.
func (h *HTTPHandler) turnsOf(r *http.Request, list bool) turns {
	all, _ := h.turns.LoadOrStore(turnsKey{ownerFrom(withOwnerOf(r)), list}, make(turns, maxFetches))
	return all.(turns)
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
