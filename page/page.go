// Package page shows wisbox in a browser to the user of the machine: the sessions of a state
// root, the actions of their programs, and undo.
//
// It is a server with its own origin, a JSON API below api/ and an embedded front end. The one-time
// URL gives its opener a cookie and a token; each request needs both, and only pages of this origin have the token. It
// sends programs' texts and pictures as text in JSON, or as a download that browsers don't display. Everything goes
// through a [wisbox.Manager] and is recorded in the sessions' logs.
package page

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

// Options of [Listen]. Manager and Store are required.
type Options struct {
	// Manager has the sessions. Close it after the server.
	Manager *wisbox.Manager
	// Store is the Manager's state root, whose logs are read.
	Store *overlay.Store
	// Session has the defaults of new sessions. Its Deny is added to the page's, each of its Limits is a default, and
	// its Allow and Mounts are ignored: only the page sets them.
	Session wisbox.SessionOptions
	// AllowedRoots are the folders whose content new sessions may copy. Default none.
	AllowedRoots []string
	// Address is host:port. Default "localhost:0": a free port of the loopback interface, with a name of this server's
	// own. Other interfaces require a certificate.
	Address string
	// URL is the page's URL for browsers, if a proxy in front passes on requests: https://host/prefix. Default: derived
	// from the address.
	URL string
	// KeepNames refuses to rename sessions, because other clients know them by their names.
	KeepNames bool
	// CertFile and KeyFile are PEM files.
	CertFile, KeyFile string
	// Version is shown.
	Version string
	// Entered is called with the next one-time URL after the last one was used.
	Entered func(next string)
	// Log gets errors of requests. Default none.
	Log *slog.Logger
}

// Server serves the page. Its methods may be called from many goroutines at once.
type Server struct {
	opts     Options
	label    string   // unique to this server, part of its name and its cookie's
	base     *url.URL // of the page, with a slash at its end
	listener net.Listener
	guard    *httpguard.Guard
	door     *door
	streams  streams
}

// Listen listens on the address. Then call [Server.Serve] or [Server.Close].
func Listen(opts *Options) (*Server, error) {
	s := &Server{opts: *opts, label: newLabel()}
	if s.opts.Log == nil {
		s.opts.Log = slog.New(slog.DiscardHandler)
	}
	guard := httpguard.Options{
		OwnKeys: true, OnlyHosts: true, CertFile: opts.CertFile, KeyFile: opts.KeyFile, Logger: s.opts.Log,
	}
	var err error
	if s.listener, err = listen(opts.Address, &guard); err != nil {
		return nil, err
	}
	if s.base, err = s.baseURL(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	guard.Hosts, guard.Origins = []string{s.base.Hostname()}, []string{origin(s.base)}
	if s.guard, err = httpguard.New(&guard); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.door = newDoor(s.label, s.base.Scheme == "https")
	return s, nil
}

// newLabel returns an unguessable label. It is longer than the number at the end of the names of sessions' ports, see
// [ports.HostName].
func newLabel() string { return strings.ToLower(rand.Text()[:16]) }

// listen listens on an address that browsers find.
func listen(addr string, guard *httpguard.Options) (net.Listener, error) {
	addr = cmp.Or(addr, "localhost:0")
	l, err := httpguard.Listen(addr, guard)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() && !httpguard.OnLoopback(addr) {
		err := tool.Errorf(tool.Invalid, "the address is %q; browsers find a name below localhost at 127.0.0.1 and ::1 alone, so give localhost:%s", addr, portIn(addr))
		return nil, errors.Join(err.In("listen"), l.Close())
	}
	return l, nil
}

func (s *Server) baseURL() (*url.URL, error) {
	if s.opts.URL != "" {
		return parseURL(s.opts.URL)
	}
	addr, ok := s.listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, tool.Errorf(tool.Invalid, "the page has no URL at a unix socket; give the one of the server in front of it").In("url")
	}
	u := &url.URL{Scheme: "http", Host: net.JoinHostPort("wisbox-"+s.label+".localhost", portOf(addr)), Path: "/"}
	if s.opts.CertFile != "" {
		u.Scheme = "https"
	}
	switch {
	case addr.IP.IsUnspecified():
		return nil, tool.Errorf(tool.Invalid, "the page has no single name at %s; give its URL, as https://HOST:%s/", addr, portOf(addr)).In("url")
	case !addr.IP.IsLoopback():
		u.Host = addr.String()
	}
	return u, nil
}

func portOf(addr *net.TCPAddr) string { return portIn(addr.String()) }

func portIn(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, tool.Errorf(tool.Invalid, "the URL is %q; it must be as https://host/prefix", text).In("url")
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/"
	return u, nil
}

// origin returns the origin as browsers send it, without the scheme's default port.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if own := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; strings.HasSuffix(host, own) {
		host = strings.TrimSuffix(host, own)
	}
	return u.Scheme + "://" + host
}

// URL returns the one-time URL for signing in. It stays the same until it is used.
func (s *Server) URL() string { return s.base.String() + "#key=" + s.door.key() }

// Address returns the address on which the server listens.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Close stops listening, as Serve does.
func (s *Server) Close() error { return s.listener.Close() }

// Serve serves until ctx ends, and leaves nothing open. Programs that were started in terminals of the page continue in
// their sessions.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	handler := s.guard.Handler(s.handler(ctx))
	err := s.guard.Serve(ctx, s.listener, handler, nil)
	cancel()
	s.streams.end()
	return err
}

// handler runs behind the guard, which has checked Host and Origin.
func (s *Server) handler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	s.routes(mux)
	served := s.streams.bounded(ctx, withHeaders(mux))
	prefix := strings.TrimSuffix(s.base.Path, "/")
	if prefix == "" {
		return served
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, prefix+"/") { // otherwise the proxy in front removes the prefix
			http.StripPrefix(prefix, served).ServeHTTP(w, r)
			return
		}
		served.ServeHTTP(w, r)
	})
}

// streams tracks the running requests, so that they end before the server.
type streams struct {
	mu   sync.Mutex
	over bool
	all  sync.WaitGroup
}

// bounded ends requests with ctx, also hijacked ones.
func (s *streams) bounded(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			httpguard.Refuse(w, http.StatusServiceUnavailable, "the page's server ends")
			return
		}
		defer s.all.Done()
		served, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(ctx, end)()
		next.ServeHTTP(w, r.WithContext(served))
	})
}

func (s *streams) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.all.Add(1)
	}
	return !s.over
}

func (s *streams) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.all.Wait()
}
