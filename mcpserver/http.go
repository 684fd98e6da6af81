package mcpserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/httpguard"
)

// HTTPOptions are the settings of a server over HTTP. Of the guard's options, only Tokens matters for security and has
// no default: without tokens only a unix socket is served.
type HTTPOptions struct {
	httpguard.Options

	// Owner returns the client of a request, never empty, if a handler in front has already authorized it: then the
	// guard is not used. Sessions, tasks and handles belong to one client and are hidden from others. Default: the
	// owner of the guard's token.
	Owner func(*http.Request) string
	// MaxSessions bounds the sessions that are open at once. Default 64.
	MaxSessions int
	// IdleTimeout ends a session without requests. Default 30 minutes.
	IdleTimeout time.Duration
}

const maxBody = 4 << 20 // bytes of a request

// newRevision is the first revision of the protocol that has no connections.
const newRevision = "2026-07-28"

// HTTPHandler serves the protocol's streamable HTTP transport. Close it at the
// end: sessions outlive requests.
type HTTPHandler struct {
	server *Server
	opts   HTTPOptions
	checks *httpguard.Guard
	whole  http.Handler
	own    *handles

	mu      sync.Mutex
	opening int // unanswered requests that may open a session

	turns turnTable // for messages that may carry a task's result

	stateful, stateless http.Handler
}

// Handler returns an HTTP handler. It checks the token, origin and size of requests, so it must be the outermost
// handler, at any path.
func (s *Server) Handler(opts *HTTPOptions) (*HTTPHandler, error) {
	var o HTTPOptions
	if opts != nil {
		o = *opts
	}
	o.MaxSessions = or(o.MaxSessions, 64)
	o.IdleTimeout = or(o.IdleTimeout, 30*time.Minute)
	if o.Logger == nil {
		o.Logger = s.opts.Logger
	}
	checks, err := httpguard.New(&o.Options)
	if err != nil {
		return nil, err
	}
	h := &HTTPHandler{server: s, opts: o, checks: checks}
	h.own = newHandles(s, h)
	h.stateful = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.sdk }, &mcp.StreamableHTTPOptions{
		SessionTimeout: o.IdleTimeout, MaxRequestBodyBytes: maxBody, DisableLocalhostProtection: true,
	})
	h.stateless = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return h.own.sdk }, &mcp.StreamableHTTPOptions{
		Stateless: true, MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true, DisableLocalhostProtection: true,
	})
	h.whole = h.guard(http.HandlerFunc(h.dispatch))
	return h, nil
}

// ServeHTTP serves one request.
func (h *HTTPHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.whole.ServeHTTP(w, r) }

// dispatch passes an authorized request to the handler of its protocol revision.
func (h *HTTPHandler) dispatch(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Mcp-Protocol-Version") >= newRevision {
		h.stateless.ServeHTTP(w, r)
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	switch {
	case r.Method == http.MethodPost && id == "":
		if !h.mayOpen() {
			httpguard.Refuse(w, http.StatusServiceUnavailable, "too many sessions are open; end one with DELETE, or wait until one is idle for long")
			return
		}
		defer h.opened()
	case r.Method == http.MethodDelete:
		h.endSession(id, auth.TokenInfoFromContext(r.Context()))
	}
	h.stateful.ServeHTTP(w, r)
}

// mayOpen reserves a slot for a session that is about to be opened, until opened is called.
func (h *HTTPHandler) mayOpen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.statefulSessions()+h.own.count()+h.opening >= h.opts.MaxSessions {
		return false
	}
	h.opening++
	return true
}

func (h *HTTPHandler) opened() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opening--
}

func (h *HTTPHandler) statefulSessions() int { return len(slices.Collect(h.server.sdk.Sessions())) }

// endSession ends the calls and the session of a connection that its client deletes; the SDK then waits for the calls.
func (h *HTTPHandler) endSession(id string, who *auth.TokenInfo) {
	for conn := range h.server.sdk.Sessions() {
		if conn.ID() == id && id != "" && h.server.ownedBy(conn, userOf(who)) {
			h.server.release(conn)
		}
	}
}

// End ends connections and handles whose session is gone, with their running calls. It calls which for each with its
// client, as returned by [HTTPOptions.Owner], and its session, or nil if none was opened. It returns when they have
// ended.
func (h *HTTPHandler) End(which func(owner string, s Session) bool) {
	var all sync.WaitGroup
	for conn := range h.server.sdk.Sessions() {
		all.Go(func() {
			if b := h.server.boundTo(conn); b != nil && which(b.owner, b.settled()) {
				h.server.release(conn)
				_ = conn.Close()
			}
		})
	}
	for handle, b := range h.own.bindings() {
		all.Go(func() {
			if which(b.owner, b.settled()) {
				h.own.drop(handle)
			}
		})
	}
	all.Wait()
}

// Close ends all sessions and their running calls.
func (h *HTTPHandler) Close() error {
	var all sync.WaitGroup
	for conn := range h.server.sdk.Sessions() {
		all.Go(func() {
			h.server.release(conn)
			_ = conn.Close()
		})
	}
	all.Go(h.own.closeAll)
	all.Wait()
	return nil
}

func userOf(who *auth.TokenInfo) string {
	if who == nil {
		return ""
	}
	return who.UserID
}

// Serve serves HTTP on l until ctx ends, then ends all sessions and returns nil. It closes l. It requires tokens unless
// l is a unix socket, and TLS unless l is on the loopback interface.
func (s *Server) Serve(ctx context.Context, l net.Listener, opts *HTTPOptions) error {
	h, err := s.Handler(opts)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return h.checks.Serve(ctx, l, h, func() { _ = h.Close() })
}
