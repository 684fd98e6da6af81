package mcpserver

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What carries a task's result can have as many bytes as a client's results together.
// So few such messages are made at once, and no more before they are taken.

const (
	fetchMethod = "tasks/get"
	fetchWeight = maxUnansweredB / 8 // bytes that such a request on a pipe counts for
	maxFetches  = 4                  // at once over HTTP, of each owner

	fetchedWithin = 2 * time.Minute  // such an answer over HTTP
	takenWithin   = 30 * time.Second // one event of a stream
)

// turns has room for one for each message that may be made at once.
type turns chan struct{}

func (t turns) take(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// turnsOf are the turns of the owner of a request.
func (h *HTTPHandler) turnsOf(r *http.Request) turns {
	all, _ := h.turns.LoadOrStore(ownerFrom(withOwnerOf(r)), make(turns, maxFetches))
	return all.(turns)
}

// whenTaken answers with results of tasks only when a pipe's client has taken what
// it was sent.
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
