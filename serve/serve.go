// Package serve runs wisbox as a server for clients of E2B, which create sandboxes, run
// programs in them and reach their ports over one address.
//
// Package e2b implements the protocol. This package adds the sessions behind it, the API
// keys and the listener.
package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/serve/e2b"
	"github.com/wisbox/wisbox/tool"
)

// Options of [New]. Manager and Dir are required.
type Options struct {
	// Manager creates the sandboxes, as kept sessions. Close it after the server.
	Manager *wisbox.Manager
	// Dir is the directory of the server's records of sandboxes and of its keys, for one
	// server at a time. It is created if it doesn't exist.
	Dir string
	// Session has the options of each sandbox.
	Session wisbox.SessionOptions
	// KeysFile is the file of the API keys, in the form that [Keys] writes. The server notices changes. Default: the
	// file in Dir.
	KeysFile string
	// Secret derives tokens for sessions on Kubernetes, where it is required: at least 32 random bytes, the same for
	// all servers of a namespace. Each server then serves all sandboxes. It also encrypts the annotations of their
	// Pods.
	Secret []byte
	// Keys are texts of API keys, in addition to those of Dir. Each is a separate owner.
	Keys []string
	// NoKeys admits every client on the loopback interface, as one owner.
	NoKeys bool
	// Domain is the domain of the ports' hosts, PORT-ID.DOMAIN. It may have a port.
	Domain string
	// CertFile and KeyFile are PEM files. Beyond the loopback interface, either they or
	// Insecure is required.
	CertFile, KeyFile string
	// Insecure serves other machines without TLS.
	Insecure bool
	// Proxies are the addresses of proxies in front of this server, whose X-Forwarded headers the programs of
	// sandboxes get.
	Proxies []netip.Prefix
	// Internet lets clients open the network of their sandboxes.
	Internet bool
	// Builds lets clients build templates, whose steps run as root in containers of Podman.
	// They have no network, unless BuildNetwork gives them the host's.
	Builds, BuildNetwork bool
	// Remote lets a wisbox on another machine use sessions here, which belong to its key. The options in Session are
	// their maximum. The server's port addresses don't reach them. Default off.
	Remote bool
	// MaxTimeout bounds the life of a sandbox that a client requests. Default 24 h.
	MaxTimeout time.Duration
	// Sandboxes is the maximum number of sandboxes of a key's owner, unless the key has its own limit. Default 20.
	Sandboxes int
	// Ready is the number of sandboxes that are kept ready, each with a running container, for clients that name no
	// template. It grows up to four times while clients take them quickly. Default none.
	Ready int
	// Disk bounds the total bytes of the sandboxes and snapshots of all keys, including the
	// host's files for each. Default no bound.
	Disk int64
	// Metrics are added to the server's own at /metrics, such as those of Manager by package
	// metrics. Default none.
	Metrics metrics.Gatherer
	// Log gets a line for each request, without keys, tokens and IDs. Default none.
	Log *slog.Logger
}

// Bounds of one server.
const (
	maxConns    = 4096
	maxRequests = 4096
	localhost   = "localhost"
)

var stopTime = patience.For(10 * time.Second) // for running calls of the control API

// Server serves clients of E2B.
type Server struct {
	opts     Options
	keys     *apikeys.Store
	listen   httpguard.Options
	guard    *httpguard.Guard // of all listeners
	registry *registry.Registry
	e2b      *e2b.Server
	mcp      *mcpDoor
	remote   *remoteDoor   // nil without [Options.Remote]
	book     *podbook.Book // of the Pods; nil if the sessions are on this machine
	close    func() error
}

// keysFile returns the path of the keys in a server's directory.
func keysFile(dir string) string { return filepath.Join(dir, "keys.json") }

// New opens a Server, with the sandboxes that Dir has from earlier ones. Close it when done.
func New(ctx context.Context, opts *Options) (*Server, error) {
	s := &Server{opts: *opts}
	if s.opts.Log == nil {
		s.opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := s.opts.Session.Check(); err != nil {
		return nil, err
	}
	domain := strings.ToLower(s.opts.Domain)
	host, _, err := net.SplitHostPort(domain)
	if err != nil {
		host = domain
	}
	if err := os.MkdirAll(s.opts.Dir, 0o700); err != nil {
		return nil, err
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	if s.keys, err = apikeys.Open(cmp.Or(s.opts.KeysFile, keysFile(s.opts.Dir)), s.opts.Keys...); err != nil {
		return nil, err
	}
	s.listen = s.guardOptions(host)
	if s.guard, err = httpguard.New(&s.listen); err != nil {
		return nil, err
	}
	check := s.keys.Check
	if s.opts.NoKeys {
		check = nil
	}
	opts.Manager.PruneTemplates(ctx, false) // removes leftovers of a killed server
	size, made := s.size(), &engine{s.opts.Manager, s.opts.Session}
	if s.mcp, err = newMCPDoor(s.opts.Manager, made.options(), s.opts.Log); err != nil {
		return nil, err
	}
	records := &registry.Options{
		Size:   registry.Quota{CPUs: size.CPUs, Memory: size.MemoryMB << 20, Disk: size.DiskMB << 20},
		Ready:  registry.Ready{Min: s.opts.Ready, Max: 4 * s.opts.Ready, Fits: isPlain},
		Beside: size.Beside, Disk: s.opts.Disk, Kept: kept{s.opts.Manager}.disk,
		Engine: made, Dir: s.opts.Dir, Log: s.opts.Log, Ended: s.mcp.ended,
		Front: e2b.Fronts(&e2b.FrontOptions{Services: services, Keys: s.isKey, Proxies: s.opts.Proxies, Log: s.opts.Log}),
	}
	api := &e2b.Options{
		Keys: check, Domain: domain, Size: size, MaxTimeout: s.opts.MaxTimeout, Sandboxes: s.opts.Sandboxes,
		Internet: s.opts.Internet, Pauses: true, Log: s.opts.Log, Templates: kept{s.opts.Manager}, MCP: s.mcp.serve,
	}
	if place := s.opts.Manager.Cluster(); place != nil {
		if err := s.overPods(place, records, api); err != nil {
			return nil, err
		}
	}
	s.registry, err = registry.Open(ctx, records)
	if errors.Is(err, registry.ErrInUse) {
		return nil, tool.Errorf(tool.Busy, "another wisbox serve uses this state root; end it first, or give this one its own --cache").Because(err)
	}
	if err != nil {
		return nil, err
	}
	cleanup.Close(s.registry)
	seen, err := newObserver(s.opts.Dir, s.opts.Log)
	if err != nil {
		return nil, err
	}
	cleanup.Close(seen)
	seen.registry = s.registry
	numbers := seen.writer(s.opts.Metrics)
	s.close = sync.OnceValue(func() error { return errors.Join(s.registry.Close(), seen.Close()) })
	if err := s.prepareBuilds(); err != nil {
		return nil, err
	}
	if s.opts.Remote {
		s.remote = newRemoteDoor(s.opts.Manager, s.guard, s.opts.Session, s.opts.Internet, s.opts.MaxTimeout)
	}
	api.Registry, api.Metrics, api.Observe = s.registry, numbers, seen.observe
	api.Builder, api.BuildDir, api.Remote = s.builder(), buildDir(s.opts.Dir), s.remote.handler()
	s.e2b = e2b.New(api)
	if s.remote != nil {
		s.remote.e2b, s.remote.registry, s.remote.note = s.e2b, s.registry, seen.observe
		s.remote.book, s.remote.log = s.book, s.opts.Log
	}
	s.mcp.e2b, s.mcp.registry, s.mcp.maxTimeout = s.e2b, s.registry, cmp.Or(s.opts.MaxTimeout, maxTimeout)
	cleanup.Keep()
	return s, nil
}

func (s *Server) isKey(text string) bool {
	_, ok := s.keys.Check(text)
	return ok
}

func (s *Server) size() e2b.Size {
	limits := s.opts.Session.Limits.WithDefaults()
	return e2b.Size{CPUs: limits.CPUs, MemoryMB: limits.Memory >> 20, DiskMB: limits.Disk >> 20, Beside: snapshotSpace(&s.opts.Session) + besideDisk}
}

func (s *Server) guardOptions(domain string) httpguard.Options {
	o := httpguard.Options{
		OwnKeys: true, Fair: true, AnyAddress: true, Below: []string{localhost}, AnyOrigin: e2b.ForPort,
		MaxConns: maxConns, MaxRequests: maxRequests, CertFile: s.opts.CertFile, KeyFile: s.opts.KeyFile,
		Plain: s.opts.Insecure, OnlyHTTP1: true, Logger: s.opts.Log,
	}
	if s.opts.NoKeys {
		o.Public = true
	}
	if domain != "" {
		o.Hosts, o.Below = []string{domain}, append(o.Below, domain)
	}
	return o
}

// Listen listens on an address such as 127.0.0.1:3000. Beyond the loopback interface, it requires
// keys and TLS.
func (s *Server) Listen(addr string) (net.Listener, error) {
	l, err := httpguard.Listen(addr, &s.listen)
	if errors.Is(err, httpguard.ErrNoToken) {
		err = errors.New("a server without keys can listen only on the loopback interface; create a key, or listen on 127.0.0.1")
	}
	return l, err
}

// Empty reports whether no key exists yet.
func (s *Server) Empty() bool { return !s.opts.NoKeys && s.keys.Empty() }

// Serve serves l until ctx ends, and closes it. It waits briefly for running calls, and ends streams. The sandboxes
// keep running, and the next server finds them.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	err := s.guard.Serve(ctx, l, s.guard.Handler(s.e2b), s.stop)
	s.e2b.Drain(stopTime)
	return err
}

// stop ends connections over MCP and connections of other machines, and waits for calls of the control API.
func (s *Server) stop() {
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(s.mcp.Close)
	if s.remote != nil {
		ending.Go(s.remote.Close)
	}
	s.e2b.Stop(stopTime)
}

// Close closes the server. Its sandboxes stay as they are.
func (s *Server) Close() error { return s.close() }
