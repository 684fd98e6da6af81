// Package mcptask adds the Model Context Protocol's tasks extension, revision 2026-07-28, to a
// server of the Go SDK, which lacks it: a long tool call is answered with a task, which its client
// polls, feeds and cancels.
//
// A call of a client that declares the extension starts like every call. If it hasn't ended after
// [Options.After], or if it calls [Begin], it becomes a task: the client gets an ID at once, and
// the call continues after its request. Its final answer is the task's result, kept for
// [Options.Keep]. A call that ends sooner is answered without a task, and so is a call beyond the
// limits.
//
// A tool asks its client questions in the same way with and without a task: it answers with
// InputRequests, and is called again with the responses.
//
// The package knows nothing of wisbox: [Options.Client] identifies the owner of a task.
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

// DefaultAfter is shorter than the default time limit of an evaluation, so that a long evaluation
// becomes a task while it still runs.
const DefaultAfter = 2 * time.Second

const (
	firstRevision = "2026-07-28" // of the protocol, in which the extension may be used
	pollEvery     = time.Second  // suggested to clients
)

// Options are the settings of tasks. All fields but Client have defaults.
type Options struct {
	// Client returns the sender of the request in a context. Only the client that created a task
	// sees it. The value must be comparable.
	Client func(context.Context) any

	// After is the time after which a call becomes a task. Default DefaultAfter.
	After time.Duration
	// Keep is the time for which a result can be fetched after its task has ended, and for which a
	// task waits for its client's answer. Default 30 minutes.
	Keep time.Duration
	// MaxOpen is the maximum number of a client's tasks that haven't ended. Default 32.
	MaxOpen int
	// MaxKept is the maximum number of a client's tasks, including ended ones. Default 256.
	MaxKept int
	// MaxBytes is the maximum size of the results kept for a client, and separately that of the params of its tasks that
	// haven't ended. Default 32 MiB.
	MaxBytes int
	// MaxAll is the maximum of both for all clients together, of which one takes at most as much as the others have left.
	// Default twice MaxBytes.
	MaxAll int
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
	if o.MaxAll == 0 {
		o.MaxAll = 2 * o.MaxBytes
	}
	return o
}

// Tasks are the tasks of all clients of a server.
type Tasks struct {
	opts Options

	mu      sync.Mutex // also guards the clients and their tasks
	clients map[any]*client
	held    int // bytes that all clients hold
	closed  bool
}

// New returns the tasks of one server. Nothing runs until a call becomes a task; End and Close stop
// running ones.
func New(opts Options) *Tasks {
	return &Tasks{opts: opts.orDefaults(), clients: map[any]*client{}}
}

// Middleware turns tool calls into tasks. It must be outside of the middleware that catches panics,
// and inside of that which Client needs.
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

// declared reports whether the client of a request with this _meta supports tasks. Clients of older
// revisions declare extensions once for a connection, and don't support tasks.
func declared(meta map[string]any) bool {
	if revision, _ := meta[mcp.MetaKeyProtocolVersion].(string); revision < firstRevision {
		return false
	}
	capabilities, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := capabilities["extensions"].(map[string]any)
	return extensions[Extension] != nil
}

// Undeclared returns the error for a client that needs the extension but doesn't declare it.
func Undeclared() error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the request needs tasks: declare " + Extension + " under extensions in the client's capabilities",
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + Extension + `":{}}}}`),
	}
}

// run runs a call, and answers with its result or with its task.
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
	k := t.adopt(t.opts.Client(ctx), c, sizeOf(req.Params), withRequest, cancel)
	<-c.sending
	close(c.decided)
	if k != nil {
		return k.seed(), nil
	}
	out := <-c.answered
	return out.res, out.err
}

const (
	metaFactor = 16      // how much more memory a decoded _meta may take than its text
	usualMeta  = 4 << 10 // bytes of it that don't count
)

// sizeOf returns the bytes that the params of a call hold at most.
func sizeOf(p *mcp.CallToolParamsRaw) int {
	meta, _ := json.Marshal(p.Meta) // it was JSON before
	return len(p.Arguments) + metaFactor*max(0, len(meta)-usualMeta)
}

// adopt turns a call whose params hold size bytes into a task, unless the call or its request has ended, or its client
// has too many tasks.
func (t *Tasks) adopt(who any, c *call, size int, leaveRequest func() bool, cancel context.CancelFunc) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	own := t.clients[who]
	if own == nil {
		own = &client{all: t, tasks: map[string]*task{}}
	}
	if t.closed || c.over || !own.room(size) || !leaveRequest() {
		return nil
	}
	t.clients[who] = own
	c.task = newTask(t, who, own, size, cancel)
	c.task.message = c.said
	close(c.begun)
	return c.task
}

// find finds a client's task.
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
	return invalid("task not found for this client; the result of one that has ended is kept for %s", t.opts.Keep)
}

// End cancels the tasks of a client that has gone, waits for them until ctx ends, and forgets their
// results.
func (t *Tasks) End(ctx context.Context, who any) {
	t.mu.Lock()
	own := t.clients[who]
	t.mu.Unlock()
	if own != nil {
		t.end(ctx, who, own)
	}
}

// Close is like End for all clients. From then on, calls don't become tasks.
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
