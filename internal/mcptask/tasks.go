// Package mcptask adds the Model Context Protocol's tasks extension, revision
// 2026-07-28, to a server of the Go SDK, which has none of it: a tool call that
// takes long is answered with a task, which its client polls, feeds and cancels.
//
// A call of a client that declares the extension runs as every call does. When it
// hasn't ended after [Options.After], or says so by [Begin], it becomes a task: the
// client gets an id at once, and the call goes on without the request that brought
// it. What it answers at last is the task's result, kept for [Options.Keep]. A call
// that ends sooner is answered as without tasks, and so is one beyond the limits.
//
// A tool asks its client as it does outside a task: it answers with InputRequests,
// and is called again with the responses.
//
// The package knows nothing of wisbox: whose a task is, [Options.Client] says.
package mcptask

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Extension is the identifier by which clients and servers declare tasks.
const Extension = "io.modelcontextprotocol/tasks"

// DefaultAfter is less than what an evaluation may take by default, so that one that
// takes long is a task while it still runs.
const DefaultAfter = 2 * time.Second

const (
	firstRevision = "2026-07-28" // of the protocol, in which the extension may be used
	pollEvery     = time.Second  // suggested to clients
)

// Options are the settings of tasks. All fields but Client have defaults.
type Options struct {
	// Client is who sent the request of a context. A task is visible to the client
	// that created it and to no other. The value must be comparable.
	Client func(context.Context) any

	// After is how long a call runs before it becomes a task. Default DefaultAfter.
	After time.Duration
	// Keep is how long a result can be fetched after its task has ended, and how
	// long a task waits for an answer of its client. Default 30 minutes.
	Keep time.Duration
	// MaxOpen bounds the tasks of a client that haven't ended. Default 32.
	MaxOpen int
	// MaxKept bounds the tasks of a client, ended ones included. Default 256.
	MaxKept int
	// MaxBytes bounds the results that are kept for a client. Default 32 MiB.
	MaxBytes int
}

func (o Options) orDefaults() Options {
	if o.After == 0 {
		o.After = DefaultAfter
	}
	if o.Keep == 0 {
		o.Keep = 30 * time.Minute
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = 32
	}
	if o.MaxKept == 0 {
		o.MaxKept = 256
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 32 << 20
	}
	return o
}

// Tasks are the tasks of all clients of a server.
type Tasks struct {
	opts Options

	mu      sync.Mutex // also of the clients and their tasks
	clients map[any]*client
	closed  bool
}

// New makes the tasks of one server. Nothing runs until a call becomes a task; End
// and Close stop what runs.
func New(opts Options) *Tasks {
	return &Tasks{opts: opts.orDefaults(), clients: map[any]*client{}}
}

// Middleware makes tasks of tool calls. It has to be outside of the middleware that
// catches panics, and inside of what Client needs.
func (t *Tasks) Middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		call, ok := req.(*mcp.CallToolRequest)
		if method == "tools/call" && ok && declared(call.Params.GetMeta()) {
			return t.run(ctx, call, next)
		}
		res, err := next(ctx, method, req)
		if first, ok := res.(*mcp.InitializeResult); ok && err == nil && first.Capabilities != nil {
			delete(first.Capabilities.Extensions, Extension) // older revisions don't have it
		}
		return res, err
	}
}

// declared reports whether the request with this _meta is of a client that takes
// tasks: older revisions, which say it once for a connection, have none.
func declared(meta map[string]any) bool {
	if revision, _ := meta[mcp.MetaKeyProtocolVersion].(string); revision < firstRevision {
		return false
	}
	capabilities, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := capabilities["extensions"].(map[string]any)
	return extensions[Extension] != nil
}

// Undeclared is the error for a client that would need the extension and doesn't
// declare it.
func Undeclared() error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the request needs tasks: declare " + Extension + " under extensions in the client's capabilities",
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + Extension + `":{}}}}`),
	}
}

// run runs a call, and answers with its result or with the task that it has become.
func (t *Tasks) run(ctx context.Context, req *mcp.CallToolRequest, next mcp.MethodHandler) (mcp.Result, error) {
	c := &call{sending: make(chan struct{}, 1), begin: make(chan struct{}, 1), begun: make(chan struct{}), decided: make(chan struct{}), answered: make(chan outcome, 1)}
	work, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), callKey{}, c))
	withRequest := context.AfterFunc(ctx, cancel)
	go func() {
		defer cancel()
		c.work(work, req, next)
	}()
	after := time.NewTimer(t.opts.After)
	defer after.Stop()
	select {
	case out := <-c.answered:
		return out.res, out.err
	case <-after.C:
	case <-c.begin:
	}
	c.sending <- struct{}{}
	k := t.adopt(t.opts.Client(ctx), c, withRequest, cancel)
	<-c.sending
	close(c.decided)
	if k != nil {
		return k.seed(), nil
	}
	out := <-c.answered
	return out.res, out.err
}

// adopt makes a task of a call, unless it has ended, its request has, or its client
// has too many.
func (t *Tasks) adopt(who any, c *call, leaveRequest func() bool, cancel context.CancelFunc) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	own := t.clients[who]
	if own == nil {
		own = &client{tasks: map[string]*task{}}
	}
	if t.closed || c.over || !own.room(&t.opts) || !leaveRequest() {
		return nil
	}
	t.clients[who] = own
	c.task = newTask(t, who, own, cancel)
	c.task.message = c.said
	close(c.begun)
	return c.task
}

// find finds a task for its client.
func (t *Tasks) find(ctx context.Context, id string) (*task, error) {
	if id == "" {
		return nil, invalid("taskId is missing; it is in the answer that created the task")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.clients[t.opts.Client(ctx)]; own != nil && own.tasks[id] != nil {
		return own.tasks[id], nil
	}
	return nil, t.unknown()
}

func (t *Tasks) unknown() error {
	return invalid("there is no such task of this client; the result of one that has ended is kept for %s", t.opts.Keep)
}

// End cancels the tasks of a client that has gone, waits for them until ctx ends, and
// forgets what they answered.
func (t *Tasks) End(ctx context.Context, who any) {
	t.mu.Lock()
	own := t.clients[who]
	t.mu.Unlock()
	if own != nil {
		t.end(ctx, who, own)
	}
}

// Close is End for all clients. Calls become tasks no more.
func (t *Tasks) Close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	all := maps.Clone(t.clients)
	t.mu.Unlock()
	var ending sync.WaitGroup
	for who, own := range all {
		ending.Go(func() { t.end(ctx, who, own) })
	}
	ending.Wait()
}

func (t *Tasks) end(ctx context.Context, who any, own *client) {
	t.mu.Lock()
	delete(t.clients, who)
	own.gone = true
	for _, k := range own.tasks {
		k.cancel()
		own.forget(k)
	}
	clear(own.tasks)
	t.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		own.work.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
