package ports

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/tool"
)

const (
	tokenParam  = "wisbox_token" // of the first URL
	cookieName  = "wisbox-port"
	idleTime    = 30 * time.Second // of a connection to the session
	idleConns   = 8
	maxLabel    = 63 // characters of a label of a host name
	refusalText = "open the URL that `wisbox port` printed: its token lets this browser in"
)

// Web is a port of a session as its own web site on this machine. Its host name is below localhost,
// so pages of other sites, and of other sessions, have another origin. Nothing is served without
// the token.
type Web struct {
	name          string // the host name
	port          uint16 // in the session
	token, cookie string
	dial          Dial
	listener      net.Listener
	guard         *httpguard.Guard
}

// WebOptions are the options of a Web; all except At are required.
type WebOptions struct {
	Session string
	Port    uint16
	Dial    Dial
	At      int // the port on this machine; 0 for any free port
}

// ListenWeb listens on a port of this machine's loopback interface.
func ListenWeb(opts *WebOptions) (*Web, error) {
	w := &Web{
		name: HostName(opts.Session, opts.Port), port: opts.Port, dial: opts.Dial,
		token: httpguard.NewToken(), cookie: httpguard.NewToken(),
	}
	var err error
	if w.listener, err = httpguard.Loopback(opts.At); err != nil {
		return nil, err
	}
	w.guard, err = httpguard.New(&httpguard.Options{
		Admit: w.admits, Refusal: refusalText, OnlyHosts: true, Hosts: []string{w.name}, Origins: w.origins(),
		MaxConns: MaxConns, MaxRequests: MaxConns,
	})
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// HostName returns the host name of a session's port: SESSION-PORT.localhost. A session's name that
// is too long for a host name is cut, and a hash makes it unique.
func HostName(session string, port uint16) string {
	label := fmt.Sprintf("%s-%d", session, port)
	if len(label) > maxLabel {
		tail := fmt.Sprintf("-%x-%d", sha256.Sum256([]byte(session)), port)
		tail = tail[:9] + tail[strings.LastIndexByte(tail, '-'):]
		label = session[:maxLabel-len(tail)] + tail
	}
	return label + ".localhost"
}

// Close closes the port; Serve does so too.
func (w *Web) Close() error { return w.listener.Close() }

// URL returns the first URL for a browser. It contains the token.
func (w *Web) URL() string { return w.origin() + "/?" + tokenParam + "=" + w.token }

func (w *Web) origin() string { return fmt.Sprintf("http://%s:%d", w.name, w.at()) }

func (w *Web) at() int { return w.listener.Addr().(*net.TCPAddr).Port }

// origins returns the origins of the site's own pages.
func (w *Web) origins() []string {
	if w.at() == 80 {
		return []string{w.origin(), "http://" + w.name}
	}
	return []string{w.origin()}
}

// Serve serves until ctx ends, and leaves nothing open.
func (w *Web) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx) },
		MaxResponseHeaderBytes: httpguard.MaxAnswerHeader,
		DisableCompression:     true, MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime,
	}
	defer transport.CloseIdleConnections()
	handler := w.guard.Handler(w.handler(ctx, transport))
	return w.guard.Serve(ctx, w.listener, handler, nil)
}

// admits decides about a request after the checks of Host and Origin.
func (w *Web) admits(r *http.Request) bool {
	if given := r.URL.Query().Get(tokenParam); given != "" {
		return httpguard.Same(given, w.token)
	}
	for _, c := range r.CookiesNamed(cookieName) {
		if httpguard.Same(c.Value, w.cookie) {
			return true
		}
	}
	return false
}

// handler handles requests that the guard has let in.
func (w *Web) handler(ctx context.Context, transport http.RoundTripper) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: w.rewrite, Transport: transport, FlushInterval: -1, ErrorHandler: w.failed, ErrorLog: log.New(io.Discard, "", 0),
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has(tokenParam) {
			w.welcome(rw, r)
			return
		}
		served, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(ctx, end)() // also of a WebSocket
		proxy.ServeHTTP(rw, r.WithContext(served))
	})
}

// welcome turns the token into a cookie, and redirects to the URL without it.
func (w *Web) welcome(rw http.ResponseWriter, r *http.Request) {
	http.SetCookie(rw, &http.Cookie{Name: cookieName, Value: w.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	query := r.URL.Query()
	query.Del(tokenParam)
	to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()} // never to another host
	rw.Header().Set("Referrer-Policy", "no-referrer")
	rw.Header().Set("Cache-Control", "no-store")
	rw.Header().Set("Location", to.String())
	rw.WriteHeader(http.StatusSeeOther)
}

// rewrite creates the request for the session's server: the browser's, without the token and the
// cookie.
func (w *Web) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", fmt.Sprintf("127.0.0.1:%d", w.port)
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	var cookies []string
	for _, header := range r.In.Header["Cookie"] {
		for one := range strings.SplitSeq(header, ";") {
			if name, _, _ := strings.Cut(strings.TrimSpace(one), "="); name != cookieName {
				cookies = append(cookies, strings.TrimSpace(one))
			}
		}
	}
	r.Out.Header.Del("Cookie")
	if len(cookies) > 0 {
		r.Out.Header.Set("Cookie", strings.Join(cookies, "; "))
	}
}

// failed answers if the session's server doesn't.
func (w *Web) failed(rw http.ResponseWriter, _ *http.Request, err error) {
	text := fmt.Sprintf("the program on port %d of the session closed the connection, doesn't speak HTTP, or answers with more than 32 KiB of headers; for other protocols leave --tcp out, or add --raw", w.port)
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		text = known.Message
	}
	http.Error(rw, "wisbox: "+text, http.StatusBadGateway)
}
