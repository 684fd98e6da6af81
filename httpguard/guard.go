// Package httpguard protects every HTTP server of wisbox: it decides which addresses a server may listen on, checks
// requests before handlers see them, and bounds what each client has at once: connections, requests, bytes of memory and
// requests a second. A request that no handler has admitted for a client is a stranger's: it has one deadline, and
// handlers read little of it. Of an admitted one, each wait for the client has a deadline. It doesn't depend on the
// protocol behind it.
package httpguard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox/tool"
)

// Options are the settings of a Guard. Without Tokens, Public or Admit, it serves only a unix socket.
type Options struct {
	// Tokens are the accepted bearer tokens, at least 22 characters each (128 bits). Each is a separate client.
	Tokens []string
	// Public admits requests without a token over the loopback interface. With OwnKeys, the handler does.
	Public bool
	// Admit reports whether to admit a request without a bearer token over the loopback interface, by a cookie for
	// instance. It runs after the checks of Host and Origin. Default: none.
	Admit func(*http.Request) bool
	// OwnKeys leaves authentication to the handler behind the guard, for instance because its keys change. The handler
	// calls [LetIn] for each request that it admits. Without it, the owner of the token is the client.
	OwnKeys bool
	// Fair bounds each client of a handler with OwnKeys by what the others have left. Servers with several Tokens always
	// do.
	Fair bool
	// Refusal is the answer to a request without a valid token. Default: "a bearer token is required".
	Refusal string
	// OnlyHosts refuses the names of the loopback interface, except for those in Hosts.
	OnlyHosts bool
	// Hosts are the accepted host names besides those of the loopback interface, without port.
	Hosts []string
	// Below are domains whose subdomains are all accepted, such as "localhost".
	Below []string
	// AnyAddress accepts any IP address as Host: unlike a name, a web page can't make an address point here.
	AnyAddress bool
	// Origins are the web origins that may send requests, as "https://host:port". Default: none, so no page in a
	// browser can send any.
	Origins []string
	// AnyOrigin reports whether pages of all origins may send a request. Default: none.
	AnyOrigin func(*http.Request) bool

	// MaxConns is the maximum number of open connections, a quarter of them for strangers. Default 1024.
	MaxConns int
	// MaxStrangers is the maximum number of connections of one address without an admitted request yet. A new one
	// replaces an old one. Default 64.
	MaxStrangers int
	// MaxRequests is the maximum number of requests served at once. Default 512.
	MaxRequests int
	// MaxOfPart is the maximum number of requests for a part of a client at once. Default 256.
	MaxOfPart int
	// MaxBytes is the memory for requests and answers that are held as a whole. Default 256 MiB.
	MaxBytes int64
	// Rate and Burst bound the requests of a client per second. Default 1000 and 2000.
	Rate  float64
	Burst int
	// ReadTimeout bounds the time of a stranger's request. Default 30 s.
	ReadTimeout time.Duration
	// Stalled is how long an admitted request waits for its client to send or to take anything. Default a minute.
	Stalled time.Duration

	// CertFile and KeyFile are PEM files, with which the server speaks TLS. They are required beyond the loopback
	// interface.
	CertFile, KeyFile string
	// Plain serves other machines without TLS: a proxy adds it, or the network is trusted.
	Plain bool
	// OnlyHTTP1 disables HTTP/2, for handlers that hijack connections.
	OnlyHTTP1 bool

	// Logger gets the server's errors. Default: nothing is logged.
	Logger *slog.Logger
}

// Limits of a connection.
const (
	maxHeader         = 64 << 10 // bytes
	readHeaderTimeout = 5 * time.Second
	keepAliveTimeout  = 2 * time.Minute
	maxStreams        = 100       // of HTTP/2
	maxBuffered       = 256 << 10 // bytes that a client of HTTP/2 may send before a handler reads them
	rateWait          = RetryAfter
	minToken          = 22 // characters
)

// Guard checks connections and requests. Its methods may be called from many
// goroutines at once.
type Guard struct {
	opts      Options
	budget    *budget
	strangers strangers
	marshals  chan struct{} // a token for each answer that is being made
}

// New returns a Guard. opts may be nil.
func New(opts *Options) (*Guard, error) {
	g := &Guard{}
	if opts != nil {
		g.opts = *opts
	}
	o := &g.opts
	o.MaxConns, o.MaxStrangers, o.MaxRequests, o.MaxOfPart = or(o.MaxConns, 1024), or(o.MaxStrangers, 64), or(o.MaxRequests, 512), or(o.MaxOfPart, 256)
	o.MaxBytes, o.Rate, o.Burst = or(o.MaxBytes, 256<<20), or(o.Rate, 1000), or(o.Burst, 2000)
	o.ReadTimeout, o.Stalled = or(o.ReadTimeout, 30*time.Second), or(o.Stalled, time.Minute)
	o.Refusal = cmp.Or(o.Refusal, "a bearer token is required")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, t := range o.Tokens {
		if len(t) < minToken {
			return nil, errors.New("a bearer token needs at least 22 characters")
		}
	}
	g.marshals = make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	free := max(1, o.MaxConns/4) // for strangers
	g.strangers = strangers{max: free, ofAddress: min(o.MaxStrangers, free), freed: make(chan struct{}, 1)}
	g.budget = &budget{
		fair: o.Fair || len(o.Tokens) > 1, max: [resources]int64{int64(max(1, o.MaxConns-free)), int64(o.MaxRequests), o.MaxBytes}, maxOfPart: o.MaxOfPart,
		rate: rate.Limit(o.Rate), burst: o.Burst, maxWait: rateWait, silence: 2 * o.Stalled, shares: map[string]*Share{},
		log: o.Logger, said: map[string]time.Time{},
	}
	return g, nil
}

func or[T int | int64 | float64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Handler passes requests to next if they pass every check, the cheapest first. It must be the outermost handler.
func (g *Guard) Handler(next http.Handler) http.Handler {
	next = g.withToken(next)
	next = g.withOrigin(next)
	next = g.withHost(next)
	return g.withExchange(next)
}

// Refuse answers at once, without waiting for the body.
func Refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, why, status)
}

// RefuseBusy answers with an error of the client's share.
func RefuseBusy(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", strconv.Itoa(int(RetryAfter.Seconds())))
	Refuse(w, http.StatusTooManyRequests, tool.AsError(err).Message)
}

// withHost refuses requests for other hosts, such as those of a web page whose own name points to this machine (DNS
// rebinding).
func (g *Guard) withHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !onUnixSocket(r) && !g.isOurName(r.Host) {
			Refuse(w, http.StatusForbidden, "the Host header names another server")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func onUnixSocket(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && local.Network() == "unix"
}

func (g *Guard) isOurName(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if slices.ContainsFunc(g.opts.Hosts, func(ours string) bool { return strings.EqualFold(ours, name) }) {
		return true
	}
	if slices.ContainsFunc(g.opts.Below, func(base string) bool { return strings.HasSuffix(name, "."+strings.ToLower(base)) }) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return !g.opts.OnlyHosts && (name == "localhost" || err == nil && (ip.IsLoopback() || g.opts.AnyAddress))
}

// withOrigin refuses requests of web pages whose origin isn't listed.
func (g *Guard) withOrigin(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	for _, origin := range g.opts.Origins {
		if err := cross.AddTrustedOrigin(origin); err != nil {
			g.opts.Logger.Error("an allowed origin can't be used", "origin", origin, "error", err)
		}
	}
	checked := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.opts.AnyOrigin != nil && g.opts.AnyOrigin(r) {
			next.ServeHTTP(w, r)
			return
		}
		for _, origin := range r.Header.Values("Origin") {
			if !slices.Contains(g.opts.Origins, origin) {
				Refuse(w, http.StatusForbidden, "requests from this origin are not allowed")
				return
			}
		}
		checked.ServeHTTP(w, r)
	})
}

// Names of the clients of a guard that checks tokens itself.
const (
	anyone  = "anyone"  // no token is required
	visitor = "visitor" // admitted by Options.Admit
)

// withToken admits requests with a valid token, for its owner.
func (g *Guard) withToken(next http.Handler) http.Handler {
	if g.opts.OwnKeys {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := g.OwnerOf(r)
		switch {
		case client != "":
		case g.Open(r):
			client = anyone
		case g.opts.Admit != nil && g.opts.Admit(r):
			client = visitor
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			Refuse(w, http.StatusUnauthorized, g.opts.Refusal)
			return
		}
		if err := LetIn(r, Client{Name: client}); err != nil {
			RefuseBusy(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Open reports whether a request needs no token.
func (g *Guard) Open(r *http.Request) bool {
	return len(g.opts.Tokens) == 0 && (g.opts.Public || onUnixSocket(r))
}

// OwnerOf returns the owner of the request's token, or "" if the token is missing or wrong.
func (g *Guard) OwnerOf(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return g.Owner(strings.TrimSpace(token))
}

// Owner returns the owner of a token, or "" for a wrong one. It takes the same time for all wrong tokens.
func (g *Guard) Owner(token string) string {
	given := sha256.Sum256([]byte(token))
	owner := ""
	for _, t := range g.opts.Tokens {
		want := sha256.Sum256([]byte(t))
		if subtle.ConstantTimeCompare(given[:], want[:]) == 1 {
			owner = hex.EncodeToString(want[:8])
		}
	}
	return owner
}

// Serve serves h, which should be a [Guard.Handler], on l until ctx ends, and closes l.
// It then calls stop, which may be nil, and closes all connections. It returns nil if ctx ended.
func (g *Guard) Serve(ctx context.Context, l net.Listener, h http.Handler, stop func()) error {
	if err := g.mayServe(l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	web := &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: keepAliveTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(g.opts.Logger.Handler(), slog.LevelDebug), ConnContext: withConn, ConnState: g.connState,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxBuffered, MaxReceiveBufferPerStream: maxBuffered},
	}
	if g.opts.OnlyHTTP1 {
		web.Protocols = new(http.Protocols)
		web.Protocols.SetHTTP1(true)
	}
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(stopped)
		if stop != nil {
			stop()
		}
		_ = web.Close()
	})
	var err error
	if l = (&listener{l, g}); g.opts.CertFile != "" {
		err = web.ServeTLS(l, g.opts.CertFile, g.opts.KeyFile)
	} else {
		err = web.Serve(l)
	}
	if end() { // the server failed before ctx ended
		if stop != nil {
			stop()
		}
		return err
	}
	<-stopped
	return nil
}
