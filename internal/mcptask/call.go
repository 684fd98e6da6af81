package mcptask

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// call is a tool call that may become a task.
type call struct {
	begin    chan struct{} // holds one when the tool wants a task now
	begun    chan struct{} // closed when there is one
	decided  chan struct{} // closed when there is one, or will be none
	answered chan outcome  // of a call that is none

	sending chan struct{} // holds one while something is sent that belongs to the request

	mu   sync.Mutex
	over bool   // without a task
	task *task  // nil until it is one
	said string // of itself, before that
}

type outcome struct {
	res mcp.Result
	err error
}

// work calls the tool, again for each answer of its client that it asks for in a task.
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

// settle answers the request of a call that became no task, and gives the task of one
// that did.
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

// Begin makes a task of the tool call under ctx now, and returns when its client can
// know. The error is [Undeclared] where the client takes none, or of ctx. A call beyond
// the limits stays without a task.
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

// Begun is closed when the tool call under ctx has become a task: its request is
// answered, and nothing more may be sent that belongs to it. It is nil where the
// client takes no tasks.
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

// Send runs send, which belongs to the request of the tool call under ctx, unless the
// call has become a task. It becomes none until send returns.
func Send(ctx context.Context, send func()) {
	if c := of(ctx); c != nil {
		c.sending <- struct{}{}
		defer func() { <-c.sending }()
	}
	if !IsTask(ctx) {
		send()
	}
}

// Note sets what the task of the tool call under ctx says of itself while it works.
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
