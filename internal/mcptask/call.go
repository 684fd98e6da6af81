package mcptask

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// call is a tool call that may become a task.
type call struct {
	begin    chan struct{} // has one element when the tool wants a task now
	begun    chan struct{} // closed when the call is a task
	decided  chan struct{} // closed when it is decided whether the call is a task
	answered chan outcome  // for a call without a task

	sending chan struct{} // has one element while something that belongs to the request is sent

	mu   sync.Mutex
	over bool   // ended without a task
	task *task  // nil until the call is a task
	said string // its last note before that
}

type outcome struct {
	res mcp.Result
	err error
}

// work calls the tool, and calls it again after each answer of the client that a task asks for.
func (c *call) work(ctx context.Context, req *mcp.CallToolRequest, next mcp.MethodHandler) {
	for {
		res, err := next(ctx, "tools/call", req)
		k := c.settle(res, err)
		if k == nil {
			return
		}
		said, _ := res.(*mcp.CallToolResult)
		if err != nil || said == nil || len(said.InputRequests) == 0 {
			k.finish(res, err)
			return
		}
		answers, err := k.ask(ctx, said.InputRequests)
		if err != nil {
			k.finish(nil, err)
			return
		}
		params := *req.Params
		params.InputResponses, params.RequestState = answers, said.RequestState
		req = &mcp.CallToolRequest{Session: req.Session, Params: &params, Extra: req.Extra}
	}
}

// settle answers the request of a call without a task, or returns the task.
func (c *call) settle(res mcp.Result, err error) *task {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task == nil {
		c.over = true
		c.answered <- outcome{res, err}
	}
	return c.task
}

type callKey struct{}

func of(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Begin turns the tool call under ctx into a task now, and returns when its client can know. The
// error is [Undeclared] if the client doesn't support tasks, or ctx's. A call beyond the limits
// stays without a task.
func Begin(ctx context.Context) error {
	c := of(ctx)
	if c == nil {
		return Undeclared()
	}
	select {
	case c.begin <- struct{}{}:
	default:
	}
	select {
	case <-c.decided:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begun returns a channel that is closed when the tool call under ctx has become a task: its
// request is answered, and nothing that belongs to it may be sent any more. The channel is nil if
// the client doesn't support tasks.
func Begun(ctx context.Context) <-chan struct{} {
	if c := of(ctx); c != nil {
		return c.begun
	}
	return nil
}

// IsTask reports whether the tool call under ctx has become a task.
func IsTask(ctx context.Context) bool {
	select {
	case <-Begun(ctx):
		return true
	default:
		return false
	}
}

// Send runs send, which sends something that belongs to the request of the tool call under ctx,
// unless the call has become a task. Until send returns, the call doesn't become one.
func Send(ctx context.Context, send func()) {
	if c := of(ctx); c != nil {
		c.sending <- struct{}{}
		defer func() { <-c.sending }()
	}
	if !IsTask(ctx) {
		send()
	}
}

// Note sets the status message of the task of the tool call under ctx.
func Note(ctx context.Context, text string) {
	if c := of(ctx); c != nil {
		c.mu.Lock()
		k := c.task
		c.said = text
		c.mu.Unlock()
		if k != nil {
			k.note(text)
		}
	}
}
