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
)

// HTTPOptions are the settings of a server over HTTP. Only Tokens matters for
// safety and has no default: without one only a unix socket is served.
type HTTPOptions struct {
	// Tokens are the bearer tokens that are let in, at least 22 characters each
	// (128 bits). Each is a client of its own: none reaches another's sessions.
	Tokens []string
	// Hosts are host names, beside those of the loopback interface, that a
	// request may be addressed to, without port.
	Hosts []string
	// Origins are the web origins that may send requests, as "https://host:port".
	// Default: none, so that no page in a browser can.
	Origins []string

	// MaxSessions bounds the sessions that are open at once. Default 64.
	MaxSessions int
	// MaxRequests bounds the requests that are served at once. Default 256.
	MaxRequests int
	// IdleTimeout ends a session without requests. Default 30 minutes.
	IdleTimeout time.Duration
	// ReadTimeout bounds the time in which a request with its body comes. Default 30 s.
	ReadTimeout time.Duration

	// CertFile and KeyFile are PEM files. With them the server speaks TLS, which
	// it must to be reached beyond the loopback interface.
	CertFile, KeyFile string
}

// Limits of a request over HTTP.
const (
	maxBody           = 4 << 20  // bytes
	maxHeader         = 64 << 10 // bytes
	readHeaderTimeout = 5 * time.Second
	keepAliveTimeout  = 2 * time.Minute
	minToken          = 22 // characters
)

// newRevision is the first revision of the protocol that has no connections.
const newRevision = "2026-07-28"

func (o *HTTPOptions) orDefaults() (HTTPOptions, error) {
	var opts HTTPOptions
	if o != nil {
		opts = *o
	}
	opts.MaxSessions = or(opts.MaxSessions, 64)
	opts.MaxRequests = or(opts.MaxRequests, 256)
	opts.IdleTimeout = or(opts.IdleTimeout, 30*time.Minute)
	opts.ReadTimeout = or(opts.ReadTimeout, 30*time.Second)
	for _, t := range opts.Tokens {
		if len(t) < minToken {
			return opts, errors.New("a bearer token needs at least 22 characters")
		}
	}
	return opts, nil
}

// HTTPHandler serves the protocol's streamable HTTP transport. Close it at the
// end: sessions outlive requests.
type HTTPHandler struct {
	server *Server
	opts   HTTPOptions
	whole  http.Handler
	own    *handles

	mu      sync.Mutex
	opening int // requests that may open a session, until they are answered

	stateful, stateless http.Handler
}

// Handler makes an HTTP handler. It checks who asks, from where and with how
// much; it has to be the outermost one, at any path.
func (s *Server) Handler(opts *HTTPOptions) (*HTTPHandler, error) {
	o, err := opts.orDefaults()
	if err != nil {
		return nil, err
	}
	h := &HTTPHandler{server: s, opts: o}
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

// dispatch sends a request that was let in to the revision that it speaks.
func (h *HTTPHandler) dispatch(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Mcp-Protocol-Version") >= newRevision {
		h.stateless.ServeHTTP(w, r)
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	switch {
	case r.Method == http.MethodPost && id == "":
		if !h.mayOpen() {
			refuse(w, http.StatusServiceUnavailable, "too many sessions are open; end one with DELETE, or wait until one is idle for long")
			return
		}
		defer h.opened()
	case r.Method == http.MethodDelete:
		h.endSession(id, auth.TokenInfoFromContext(r.Context()))
	}
	h.stateful.ServeHTTP(w, r)
}

// mayOpen takes a place for a session that is about to be opened, until opened.
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

// endSession ends the calls and the session of a connection that its client
// takes leave of; the SDK, which comes next, waits for the calls.
func (h *HTTPHandler) endSession(id string, who *auth.TokenInfo) {
	for conn := range h.server.sdk.Sessions() {
		if conn.ID() == id && id != "" && h.server.ownedBy(conn, userOf(who)) {
			h.server.release(conn)
		}
	}
}

// Close ends all sessions and what runs in them.
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

// Serve serves HTTP on l until ctx ends, then ends all sessions and returns nil.
// l is closed. On anything but a unix socket tokens are needed, and TLS where l
// is not on the loopback interface.
func (s *Server) Serve(ctx context.Context, l net.Listener, opts *HTTPOptions) error {
	h, err := s.Handler(opts)
	if err == nil {
		err = mayServe(l.Addr(), h.opts)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	web := &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: keepAliveTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: quietLog(s.opts.Logger),
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		_ = h.Close()
		_ = web.Close()
	}()
	if h.opts.CertFile != "" {
		err = web.ServeTLS(l, h.opts.CertFile, h.opts.KeyFile)
	} else {
		err = web.Serve(l)
	}
	if ctx.Err() == nil { // it broke by itself
		return errors.Join(err, h.Close())
	}
	<-stopped
	return nil
}
