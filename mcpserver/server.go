package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/internal/mcptask"
	"github.com/wisbox/wisbox/tool"
)

// Session handles the calls of a connection. Its methods may be called concurrently; Call returns soon after its
// context ends.
type Session interface {
	// ID returns the session's name for people and resources. It is not a secret.
	ID() string
	// Call runs a tool. Every error is, or wraps, a *tool.Error.
	Call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error)
	// Close ends the session and its running calls. It is called once.
	Close(ctx context.Context) error
}

// Options are the settings of a server. Nil and zero fields work.
type Options struct {
	// Open opens the session of a connection. The context lives as long as the connection and has the values of the
	// first HTTP request that needs the session; [Owner] returns its client. Nil means that calls go to the set itself,
	// and nothing is closed.
	Open func(ctx context.Context) (Session, error)

	// Name, Title and Version describe the server to clients. Default "wisbox".
	Name, Title, Version string
	// Instructions tell a model how the tools go together.
	Instructions string
	// Unlisted reports whether a tool can be called but isn't in the list of tools. Default: none is.
	Unlisted func(name string) bool

	// MaxCalls is the maximum number of running calls of all connections; further calls wait. Default 64.
	MaxCalls int
	// ProgressEvery is the minimum time between two progress notifications of a call. Default 2 s.
	ProgressEvery time.Duration
	// PollAfter is the time after which a call answers with a process, if the client prefers polling. Default 50 s.
	PollAfter time.Duration
	// TaskAfter is the time after which a call is answered with a task, if the client supports tasks. Default 2 s, less
	// than the default time limit of an evaluation.
	TaskAfter time.Duration
	// CloseWithin bounds the closing of one session. Default 8 s.
	CloseWithin time.Duration
	// Logger gets the details that clients must not see. Default: nothing is logged.
	Logger *slog.Logger

	// Extend adds features to the two servers of the SDK: one for connections, one for clients without. It is for
	// tools, resources and prompts that belong to no session; they may change at any time. Default: nothing.
	Extend func(*mcp.Server)
}

func (o *Options) orDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Name = or(opts.Name, "wisbox")
	opts.Version = or(opts.Version, "0.0.0")
	opts.MaxCalls = or(opts.MaxCalls, 64)
	opts.ProgressEvery = or(opts.ProgressEvery, 2*time.Second)
	opts.PollAfter = or(opts.PollAfter, 50*time.Second)
	opts.CloseWithin = or(opts.CloseWithin, 8*time.Second)
	opts.Logger = or(opts.Logger, slog.New(slog.DiscardHandler))
	return opts
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Server serves one set of tools to any number of connections.
type Server struct {
	opts  Options
	set   *tool.Set
	slots chan struct{} // one for each running call
	sdk   *mcp.Server
	tasks *mcptask.Tasks // of clients on pipes

	resources *resources // of the sessions of connections

	mu       sync.Mutex
	bindings map[*mcp.ServerSession]*binding

	requests sync.Map // ID of a running HTTP request -> its *stream
}

// New returns a server for the tools in set. It does nothing until one of the Serve methods or a handler is used.
func New(set *tool.Set, opts *Options) *Server {
	s := &Server{opts: opts.orDefaults(), set: set, bindings: map[*mcp.ServerSession]*binding{}}
	s.slots = make(chan struct{}, s.opts.MaxCalls)
	s.sdk, s.resources, s.tasks = s.newSDKServer(s.findOpen)
	for _, t := range set.Tools() {
		s.sdk.AddTool(describe(t), s.handler(t.Name))
	}
	s.sdk.AddReceivingMiddleware(s.bind)
	return s
}

// bind records the owner of a connection over HTTP from its beginning.
func (s *Server) bind(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		conn, ok := req.GetSession().(*mcp.ServerSession)
		if extra := req.GetExtra(); ok && method == "initialize" && extra != nil && extra.TokenInfo != nil {
			s.bindingOf(conn, userOf(extra.TokenInfo))
		}
		return next(ctx, method, req)
	}
}

func (s *Server) newSDKServer(find finder) (*mcp.Server, *resources, *mcptask.Tasks) {
	info := &mcp.Implementation{Name: s.opts.Name, Title: s.opts.Title, Version: s.opts.Version}
	changing := s.opts.Extend != nil
	r := &resources{server: s, find: find}
	sdk := mcp.NewServer(info, &mcp.ServerOptions{
		Instructions: s.opts.Instructions, CompletionHandler: r.complete,
		SubscribeHandler: r.subscribe, UnsubscribeHandler: r.unsubscribe,
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: changing}, Prompts: &mcp.PromptCapabilities{ListChanged: changing},
			Resources: &mcp.ResourceCapabilities{ListChanged: changing},
			Logging:   &mcp.LoggingCapabilities{}, Extensions: map[string]any{mcptask.Extension: map[string]any{}},
		},
	})
	r.offer(sdk)
	s.addGuide(sdk, find)
	if changing {
		s.opts.Extend(sdk)
	}
	tasks := mcptask.New(mcptask.Options{Client: clientOf, After: s.opts.TaskAfter})
	if err := errors.Join(tasks.Offer(sdk), mcp.AddReceivingCustomMethod(sdk, ownListen, listenOnPipe(tasks))); err != nil {
		s.opts.Logger.Error("offer tasks", "error", err)
	}
	sdk.AddReceivingMiddleware(s.withRequest, tasks.Middleware, s.survive, s.unlist, checkLevel, whenTaken)
	return sdk, r, tasks
}

// unlist removes the unlisted tools from lists.
func (s *Server) unlist(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if list, ok := res.(*mcp.ListToolsResult); ok && err == nil && s.opts.Unlisted != nil {
			list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return s.opts.Unlisted(t.Name) })
		}
		return res, err
	}
}

type ownerKey struct{}

// withRequest adds a request's client to the context of its handlers, and the values
// from the context of its HTTP request.
func (s *Server) withRequest(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		extra := req.GetExtra()
		if extra == nil {
			return next(ctx, method, req)
		}
		asked := ctx
		request, overHTTP := s.requests.Load(extra.Header.Get(requestHeader))
		if overHTTP {
			ctx = valued{ctx, request.(*stream).ctx}
		}
		res, err := next(context.WithValue(ctx, ownerKey{}, userOf(extra.TokenInfo)), method, req)
		if overHTTP && asked.Err() != nil && request.(*stream).ctx.Err() == nil { // its client has cancelled it
			request.(*stream).silence()
		}
		return res, err
	}
}

// withOwnerOf is withRequest for requests that the SDK doesn't see.
func withOwnerOf(r *http.Request) context.Context {
	return context.WithValue(r.Context(), ownerKey{}, userOf(auth.TokenInfoFromContext(r.Context())))
}

// Owner returns the HTTP client for which [Options.Open] is called, as returned by [HTTPOptions.Owner] or the guard; ""
// stands for a pipe, and for clients that need no token.
func Owner(ctx context.Context) string { return ownerFrom(ctx) }

func ownerFrom(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}

// clientOf returns the owner of a task: the pipe, or else the token. All clients of a unix socket without tokens are
// one owner.
func clientOf(ctx context.Context) any {
	if c, _ := ctx.Value(connKey{}).(*conn); c != nil {
		return c
	}
	return ownerFrom(ctx)
}

// handler answers the calls of one tool on connections with a session.
func (s *Server) handler(name string) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return s.answer(ctx, req, func(ctx context.Context) (*tool.Result, error) {
			return s.bindingOf(req.Session, ownerFrom(ctx)).call(ctx, name, req.Params.Arguments)
		})
	}
}
