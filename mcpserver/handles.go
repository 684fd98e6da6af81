package mcpserver

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/internal/mcptask"
	"github.com/wisbox/wisbox/tool"
)

// handles holds the open sessions of clients of the connectionless revision. A handle is only a name and grants no
// access: each call must have the token that opened the session.
type handles struct {
	server *Server
	http   *HTTPHandler
	sdk    *mcp.Server
	tasks  *mcptask.Tasks

	mu   sync.Mutex
	open map[string]*held
}

// held is one session behind a handle.
type held struct {
	binding *binding
	owner   string
	calls   int // that run
	idle    *time.Timer
	gone    bool // or being closed
}

func newHandles(s *Server, h *HTTPHandler) *handles {
	own := &handles{server: s, http: h, open: map[string]*held{}}
	own.sdk, _, own.tasks = s.newSDKServer(own.find)
	for _, t := range s.set.Tools() {
		d := describe(t)
		d.InputSchema = schemaJSON(withSession(t.Input))
		own.sdk.AddTool(d, own.handler(t.Name))
	}
	for _, t := range own.tools() {
		own.sdk.AddTool(describe(t), own.direct(t))
	}
	return own
}

type (
	openParams struct{}
	openResult struct {
		Session string `json:"session" jsonschema:"the handle to give with every call"`
	}
	closeParams struct {
		Session string `json:"session" jsonschema:"the handle that session_open gave"`
	}
	closeResult struct {
		Closed bool `json:"closed"`
	}
)

func (o *handles) tools() []tool.Tool {
	return []tool.Tool{
		tool.New(tool.Spec{
			Name: "session_open", Title: "Open a session",
			Description: "Open a new session with an empty workspace, and return its handle, which every other tool needs. Close it with session_close.",
		}, func(ctx context.Context, _ openParams) (openResult, error) {
			handle, err := o.start(ctx, ownerFrom(ctx))
			return openResult{handle}, err
		}),
		tool.New(tool.Spec{
			Name: "session_close", Title: "Close a session", Destructive: true,
			Description: "End a session: its programs are stopped and, unless the session is kept, its workspace is removed.",
		}, func(ctx context.Context, p closeParams) (closeResult, error) {
			return closeResult{true}, o.end(p.Session, ownerFrom(ctx))
		}),
	}
}

// direct answers the calls of a tool that needs no session.
func (o *handles) direct(t tool.Tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return o.server.answer(ctx, req, func(ctx context.Context) (*tool.Result, error) {
			return t.Call(ctx, req.Params.Arguments)
		})
	}
}

// handler answers the calls of a tool on the session that they name.
func (o *handles) handler(name string) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return o.server.answer(ctx, req, func(ctx context.Context) (*tool.Result, error) {
			handle, args, err := splitSession(req.Params.Arguments)
			if err != nil {
				return nil, err
			}
			h, err := o.enter(handle, ownerFrom(ctx))
			if err != nil {
				return nil, err
			}
			defer o.leave(h)
			return h.binding.call(ctx, name, args)
		})
	}
}

// start opens a session at once, so that errors are reported now.
func (o *handles) start(ctx context.Context, owner string) (string, error) {
	handle := rand.Text()
	h := &held{binding: o.server.newBinding(owner), owner: owner, calls: 1}
	h.idle = time.AfterFunc(o.http.opts.IdleTimeout, func() { o.expire(handle) })
	o.mu.Lock()
	full := o.http.statefulSessions()+len(o.open) >= o.http.opts.MaxSessions
	if !full {
		o.open[handle] = h
	}
	o.mu.Unlock()
	if full {
		h.idle.Stop()
		return "", tool.Errorf(tool.Limit, "%d sessions are open, which is the limit; close one", o.http.opts.MaxSessions)
	}
	defer o.leave(h)
	if _, err := h.binding.session(ctx); err != nil {
		o.drop(handle)
		return "", err
	}
	return handle, nil
}

// enter returns a session for a call of its owner. Others get not_found.
func (o *handles) enter(handle, owner string) (*held, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.open[handle]
	if h == nil || h.gone || h.owner != owner {
		return nil, tool.Errorf(tool.NotFound, "session not found; open one with session_open").In("session")
	}
	h.calls++
	h.idle.Stop()
	return h, nil
}

// find finds a session by its handle, for its owner's resources.
func (o *handles) find(_ *mcp.ServerSession, owner, handle string) (Session, func(), error) {
	h, err := o.enter(handle, owner)
	if err != nil {
		return nil, nil, err
	}
	s, err := h.binding.outcome()
	if err != nil {
		o.leave(h)
		return nil, nil, err
	}
	return s, func() { o.leave(h) }, nil
}

func (o *handles) leave(h *held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.calls--; h.calls == 0 && !h.gone {
		h.idle.Reset(o.http.opts.IdleTimeout)
	}
}

func (o *handles) end(handle, owner string) error {
	h, err := o.enter(handle, owner)
	if err != nil {
		return err
	}
	o.drop(handle)
	o.leave(h)
	return nil
}

func (o *handles) expire(handle string) {
	o.mu.Lock()
	h := o.open[handle]
	busy := h != nil && h.calls > 0
	o.mu.Unlock()
	if !busy {
		o.drop(handle)
	}
}

// drop closes a session with its running calls, and forgets it. It returns when the session is closed, even if another
// caller closes it.
func (o *handles) drop(handle string) {
	o.mu.Lock()
	h := o.open[handle]
	if h != nil {
		h.gone = true
		h.idle.Stop()
	}
	o.mu.Unlock()
	if h == nil {
		return
	}
	o.server.closeBinding(h.binding)
	o.mu.Lock()
	delete(o.open, handle)
	o.mu.Unlock()
}

// bindings returns the bindings of all handles.
func (o *handles) bindings() map[string]*binding {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]*binding{}
	for handle, h := range o.open {
		all[handle] = h.binding
	}
	return all
}

func (o *handles) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

func (o *handles) closeAll() {
	o.mu.Lock()
	var all []string
	for handle := range o.open {
		all = append(all, handle)
	}
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), o.server.opts.CloseWithin)
	defer cancel()
	var closing sync.WaitGroup
	closing.Go(func() { o.tasks.Close(ctx) })
	for _, handle := range all {
		closing.Go(func() { o.drop(handle) })
	}
	closing.Wait()
}
