// Package page is wisbox in a browser, for the person whose machine it is: the sessions of a
// state root, what their programs did, and the way back.
//
// It is a server with an origin of its own, a JSON API below api/ and a front end that is
// embedded. The one-time URL gives its opener a cookie and a token; each request needs
// both, and only pages of this origin have the token. Whatever programs wrote leaves it as
// text in JSON, or as a download that no browser shows. It makes nothing by itself:
// everything is done by a [wisbox.Manager] and stands in the sessions' logs.
package page

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/ports"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

// Options of [Listen]. Manager and Store are required.
type Options struct {
	// Manager has the sessions. Close it after the server.
	Manager *wisbox.Manager
	// Store is the Manager's state root, whose logs are read.
	Store *overlay.Store
	// Session is what new sessions are made with where the page doesn't say otherwise. Its
	// Deny is joined, its Limits count one by one, and its Allow and Mounts are left out:
	// these are the page's alone.
	Session wisbox.SessionOptions
	// AllowedRoots are the folders that new sessions may get copies of. Default none.
	AllowedRoots []string
	// Address is host:port. Default and "localhost:0": a free port of the loopback
	// interface, at a name of this server alone. Beyond it a certificate is needed.
	Address string
	// URL is what browsers find the page by, where something in front passes requests
	// on: https://host/prefix. Default: made of the address.
	URL string
	// CertFile and KeyFile are PEM files.
	CertFile, KeyFile string
	// Version is shown.
	Version string
	// Entered is called when the one-time URL was used, with the next one.
	Entered func(next string)
	// Log gets what is wrong with requests. Default none.
	Log *slog.Logger
}

// Server serves the page. Its methods may be called from many goroutines at once.
type Server struct {
	opts      Options
	label     string   // of this server alone, in its name and its cookie's
	base      *url.URL // of the page, with a slash at its end
	listeners []net.Listener
	guard     *httpguard.Guard
	door      *door
	streams   streams
}

// Listen takes the address. Call [Server.Serve] then, or [Server.Close].
func Listen(opts *Options) (*Server, error) {
	s := &Server{opts: *opts, label: newLabel()}
	if s.opts.Log == nil {
		s.opts.Log = slog.New(slog.DiscardHandler)
	}
	guard := httpguard.Options{
		OwnKeys: true, OnlyHosts: true, CertFile: opts.CertFile, KeyFile: opts.KeyFile, Logger: s.opts.Log,
	}
	var err error
	if s.listeners, err = listen(opts.Address, &guard); err != nil {
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

// newLabel is what nobody guesses. It is longer than the number that names of sessions' ports
// end with, see [ports.HostName].
func newLabel() string { return strings.ToLower(rand.Text()[:16]) }

// listen takes both families of the loopback interface: a browser takes a name below
// localhost for both, so nobody else may have the other one.
func listen(addr string, guard *httpguard.Options) ([]net.Listener, error) {
	if addr == "" {
		addr = "localhost:0"
	}
	if host, port, err := net.SplitHostPort(addr); err == nil && foundByBrowsers(host) {
		number, err := net.LookupPort("tcp", port)
		if err != nil {
			return nil, &net.AddrError{Err: "no TCP port", Addr: addr}
		}
		return ports.Loopback(number)
	}
	l, err := httpguard.Listen(addr, guard)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		err := tool.Errorf(tool.Invalid, "the address is %q; browsers find a name below localhost at 127.0.0.1 and ::1 alone, so give localhost:%s", addr, portIn(addr))
		return nil, errors.Join(err.In("listen"), l.Close())
	}
	return []net.Listener{l}, nil
}

// foundByBrowsers reports whether a host is where they look for a name below localhost.
func foundByBrowsers(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && (addr.Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || addr == netip.IPv6Loopback())
}

func (s *Server) baseURL() (*url.URL, error) {
	if s.opts.URL != "" {
		return parseURL(s.opts.URL)
	}
	addr, ok := s.listeners[0].Addr().(*net.TCPAddr)
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

// origin is as browsers send it: without the scheme's own port.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if own := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; strings.HasSuffix(host, own) {
		host = strings.TrimSuffix(host, own)
	}
	return u.Scheme + "://" + host
}

// URL lets in one browser, once. It stays the same until it is used.
func (s *Server) URL() string { return s.base.String() + "#key=" + s.door.key() }

// Address is where the server listens.
func (s *Server) Address() net.Addr { return s.listeners[0].Addr() }

// Close gives the address up; Serve does so too.
func (s *Server) Close() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Serve serves until ctx ends, and leaves nothing open. Programs that terminals of the page
// began go on in their sessions.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	handler := s.guard.Handler(s.handler(ctx))
	errs := make([]error, len(s.listeners))
	var serving sync.WaitGroup
	for i, l := range s.listeners {
		serving.Go(func() {
			defer cancel()
			errs[i] = s.guard.Serve(ctx, l, handler, nil)
		})
	}
	serving.Wait()
	s.streams.end()
	return errors.Join(errs...)
}

// handler is behind the guard: Host and Origin were looked at.
func (s *Server) handler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	s.routes(mux)
	served := s.streams.bounded(ctx, withHeaders(mux))
	prefix := strings.TrimSuffix(s.base.Path, "/")
	if prefix == "" {
		return served
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, prefix+"/") { // else the server in front takes the prefix off
			http.StripPrefix(prefix, served).ServeHTTP(w, r)
			return
		}
		served.ServeHTTP(w, r)
	})
}

// streams are the requests under way: what they do to sessions ends before the server.
type streams struct {
	mu   sync.Mutex
	over bool
	all  sync.WaitGroup
}

// bounded ends requests with ctx, those too that took their connection over.
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
