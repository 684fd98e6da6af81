// Package httpguard is what stands before every HTTP surface of wisbox: who may
// connect and how often, which addresses may be listened on, and what a request passes
// before any of it is believed. It knows no protocol behind it.
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
	"slices"
	"strings"
	"time"
)

// Options are the settings of a Guard. Without Tokens only a unix socket is served,
// unless Public or Admit says otherwise.
type Options struct {
	// Tokens are the bearer tokens that are let in, at least 22 characters each
	// (128 bits). Each is a client of its own.
	Tokens []string
	// Public lets in requests without a token over the loopback interface.
	Public bool
	// Admit lets in requests over the loopback interface without a bearer token, by a
	// cookie for instance. Their Host and Origin are checked before. Default: none.
	Admit func(*http.Request) bool
	// OwnKeys leaves it to the handler behind the guard to check who asks, where keys
	// come and go for instance. It calls [LetIn] for a request that it lets in.
	OwnKeys bool
	// Refusal is the answer to a request that lacks a token. Default: that it needs one.
	Refusal string
	// OnlyHosts takes the names of the loopback interface out: those of Hosts are left.
	OnlyHosts bool
	// Hosts are host names, beside those of the loopback interface, that a
	// request may be addressed to, without port.
	Hosts []string
	// Below are names below which every host name is this server's, as "localhost".
	Below []string
	// AnyAddress lets a Host be an IP address of any kind: no page in a browser can have
	// made one point here.
	AnyAddress bool
	// Origins are the web origins that may send requests, as "https://host:port".
	// Default: none, so that no page in a browser can.
	Origins []string
	// AnyOrigin, where it is set, picks requests that pages of all origins may send.
	AnyOrigin func(*http.Request) bool

	// MaxRequests bounds the requests that are served at once. Default 256.
	MaxRequests int
	// ReadTimeout bounds the time in which a request with its body comes. Default 30 s.
	ReadTimeout time.Duration
	// MaxConns bounds the connections that are open at once. Default 512.
	MaxConns int
	// MaxStrangers bounds those of them, from one address, that brought no request yet
	// which was let in. One more takes the place of an old one. Default 64; from all
	// addresses half of MaxConns.
	MaxStrangers int

	// CertFile and KeyFile are PEM files. With them the server speaks TLS, which
	// it must to be reached beyond the loopback interface.
	CertFile, KeyFile string
	// Plain serves other machines without TLS too: something in front speaks it, or the
	// network is trusted.
	Plain bool
	// OnlyHTTP1 leaves out HTTP/2, over which handlers can't take a connection over.
	OnlyHTTP1 bool

	// Logger gets what is wrong with requests. Default: nothing is logged.
	Logger *slog.Logger
}

// Limits of a connection.
const (
	maxHeader         = 64 << 10 // bytes
	readHeaderTimeout = 5 * time.Second
	keepAliveTimeout  = 2 * time.Minute
	minToken          = 22 // characters
)

// Guard checks connections and requests. Its methods may be called from many
// goroutines at once.
type Guard struct{ opts Options }

// New makes a Guard. opts may be nil.
func New(opts *Options) (*Guard, error) {
	g := &Guard{}
	if opts != nil {
		g.opts = *opts
	}
	o := &g.opts
	o.MaxRequests = or(o.MaxRequests, 256)
	o.ReadTimeout = or(o.ReadTimeout, 30*time.Second)
	o.MaxConns = or(o.MaxConns, 512)
	o.MaxStrangers = or(o.MaxStrangers, 64)
	o.Refusal = cmp.Or(o.Refusal, "a bearer token is needed")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, t := range o.Tokens {
		if len(t) < minToken {
			return nil, errors.New("a bearer token needs at least 22 characters")
		}
	}
	return g, nil
}

func or[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Handler lets requests through to next that pass every check, cheapest first. It has
// to be the outermost handler, at any path.
func (g *Guard) Handler(next http.Handler) http.Handler {
	next = g.withToken(next)
	next = g.withOrigin(next)
	next = g.withHost(next)
	next = g.withTurn(next)
	return g.withDeadline(next)
}

// withDeadline bounds the time in which a whole request comes. Behind a request that
// was refused without a look at its body net/http would wait for the rest for ever.
func (g *Guard) withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.opts.ReadTimeout))
		next.ServeHTTP(w, r)
	})
}

// Refuse answers at once, though the body may still be on its way.
func Refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, why, status)
}

// withTurn refuses what is too much at once.
func (g *Guard) withTurn(next http.Handler) http.Handler {
	turns := make(chan struct{}, g.opts.MaxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			next.ServeHTTP(w, r)
		default:
			Refuse(w, http.StatusServiceUnavailable, "too many requests at once")
		}
	})
}

// withHost refuses requests that were not meant for us: a page that made its own
// name point to this machine.
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

// withOrigin refuses pages in a browser that nobody listed.
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

// withToken lets in who holds a token. The connection is no stranger's from then on.
func (g *Guard) withToken(next http.Handler) http.Handler {
	if g.opts.OwnKeys {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.Open(r) && g.OwnerOf(r) == "" && (g.opts.Admit == nil || !g.opts.Admit(r)) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			Refuse(w, http.StatusUnauthorized, g.opts.Refusal)
			return
		}
		LetIn(r)
		next.ServeHTTP(w, r)
	})
}

// LetIn says that a request was let in: its connection is no stranger's from then on. It
// is for the handlers of [Options.OwnKeys].
func LetIn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.prove()
	}
}

// Open reports whether a request needs no token.
func (g *Guard) Open(r *http.Request) bool {
	return len(g.opts.Tokens) == 0 && (g.opts.Public || onUnixSocket(r))
}

// OwnerOf names the holder of the request's token, "" for a wrong one or none.
func (g *Guard) OwnerOf(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return g.Owner(strings.TrimSpace(token))
}

// Owner names the holder of a token, "" for a wrong one. It takes the same time
// for all wrong ones.
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
// It then calls stop, which may be nil, and closes all connections. It returns nil when
// ctx ended it.
func (g *Guard) Serve(ctx context.Context, l net.Listener, h http.Handler, stop func()) error {
	if err := g.mayServe(l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	web := &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: keepAliveTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(g.opts.Logger.Handler(), slog.LevelDebug), ConnContext: withConn,
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
	if l = g.bounded(l); g.opts.CertFile != "" {
		err = web.ServeTLS(l, g.opts.CertFile, g.opts.KeyFile)
	} else {
		err = web.Serve(l)
	}
	if end() { // it broke by itself
		if stop != nil {
			stop()
		}
		return err
	}
	<-stopped
	return nil
}
