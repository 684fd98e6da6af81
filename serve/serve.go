// Package serve is wisbox as a server: clients of E2B make sandboxes, run programs in
// them and reach their ports, over one address. Package e2b has the protocol; here are
// the sessions behind it, who may use them, and the listener.
package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/serve/e2b"
	"github.com/wisbox/wisbox/tool"
)

// Options of [New]. Manager and Dir are required.
type Options struct {
	// Manager makes the sandboxes, as kept sessions. Close it after the server.
	Manager *wisbox.Manager
	// Dir is where the server keeps what it knows of sandboxes, and its keys: a directory
	// of its own, for one server at a time. It is made where it is missing.
	Dir string
	// Session is what each sandbox is made with.
	Session wisbox.SessionOptions
	// Keys are texts of API keys, beside those of Dir. Each is an owner of its own.
	Keys []string
	// NoKeys lets everybody in who reaches the loopback interface, as one owner.
	NoKeys bool
	// Domain is what hosts of ports are below, maybe with a port: PORT-ID.DOMAIN.
	Domain string
	// CertFile and KeyFile are PEM files. Beyond the loopback interface they are needed,
	// or Insecure.
	CertFile, KeyFile string
	// Insecure serves other machines without TLS.
	Insecure bool
	// Internet lets clients open the network of their sandboxes.
	Internet bool
	// Builds lets clients build templates: their steps run as root in containers of
	// Podman's, without a network unless BuildNetwork gives them the host's.
	Builds, BuildNetwork bool
	// MaxTimeout bounds the life of a sandbox that a client asks for. Default 24 h.
	MaxTimeout time.Duration
	// Sandboxes is how many a key's owner has at once, where the key doesn't say.
	// Default 20.
	Sandboxes int
	// Ready is how many sandboxes are kept ready, each with a container that runs, for
	// clients that ask for no template. Four times as many while they are taken quickly.
	// Default none.
	Ready int
	// Disk bounds what the sandboxes and snapshots of all keys may take together, with what
	// the host keeps of each, in bytes. Default no bound.
	Disk int64
	// Metrics are numbers that /metrics has beside the server's own, as those of Manager
	// by package metrics. Default none.
	Metrics prometheus.Gatherer
	// Log gets a line a request, without keys, tokens and IDs. Default none.
	Log *slog.Logger
}

// Bounds of one server.
const (
	maxConns    = 4096
	maxRequests = 4096
	localhost   = "localhost"
	stopTime    = 10 * time.Second // for calls of the control API that are under way
)

// Server serves clients of E2B.
type Server struct {
	opts     Options
	keys     *apikeys.Store
	guard    httpguard.Options
	registry *registry.Registry
	e2b      *e2b.Server
	mcp      *mcpDoor
	close    func() error
}

// keysFile is where the keys of a server's directory are.
func keysFile(dir string) string { return filepath.Join(dir, "keys.json") }

// New finds the sandboxes of Dir again. Close the Server when done.
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
	if s.keys, err = apikeys.Open(keysFile(s.opts.Dir), s.opts.Keys...); err != nil {
		return nil, err
	}
	s.guard = s.guardOptions(host)
	check := s.keys.Check
	if s.opts.NoKeys {
		check = nil
	}
	opts.Manager.PruneTemplates(ctx, false) // what a server left that was killed
	size, made := s.size(), &engine{s.opts.Manager, s.opts.Session}
	if s.mcp, err = newMCPDoor(s.opts.Manager, made.options(), s.opts.Log); err != nil {
		return nil, err
	}
	s.registry, err = registry.Open(ctx, &registry.Options{
		Size:   registry.Quota{CPUs: size.CPUs, Memory: size.MemoryMB << 20, Disk: size.DiskMB << 20},
		Ready:  registry.Ready{Min: s.opts.Ready, Max: 4 * s.opts.Ready, Fits: isPlain},
		Beside: size.Beside, Disk: s.opts.Disk, Kept: kept{s.opts.Manager}.disk,
		Engine: made, Dir: s.opts.Dir, Log: s.opts.Log, Ended: s.mcp.ended,
		Front: e2b.Fronts(&e2b.FrontOptions{Services: services, Keys: s.isKey, Log: s.opts.Log}),
	})
	if errors.Is(err, registry.ErrInUse) {
		return nil, tool.Errorf(tool.Busy, "another wisbox serve uses this state root; end it first, or give this one a --cache of its own").Because(err)
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
	numbers, err := seen.writer(s.opts.Metrics)
	if err != nil {
		return nil, err
	}
	s.close = sync.OnceValue(func() error { return errors.Join(s.registry.Close(), seen.Close()) })
	if err := s.prepareBuilds(); err != nil {
		return nil, err
	}
	s.e2b = e2b.New(&e2b.Options{
		Registry: s.registry, Keys: check, Domain: domain, Size: size, MaxTimeout: s.opts.MaxTimeout,
		Sandboxes: s.opts.Sandboxes, Internet: s.opts.Internet, Pauses: true, Log: s.opts.Log,
		Templates: kept{s.opts.Manager}, MCP: s.mcp.serve, Metrics: numbers, Observe: seen.observe,
		Builder: s.builder(), BuildDir: buildDir(s.opts.Dir),
	})
	s.mcp.e2b, s.mcp.registry, s.mcp.maxTimeout = s.e2b, s.registry, cmp.Or(s.opts.MaxTimeout, 24*time.Hour)
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
		OwnKeys: !s.opts.NoKeys, AnyAddress: true, Below: []string{localhost}, AnyOrigin: e2b.ForPort,
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

// Listen opens an address, as 127.0.0.1:3000. Beyond the loopback interface keys and TLS
// are needed.
func (s *Server) Listen(addr string) (net.Listener, error) {
	l, err := httpguard.Listen(addr, &s.guard)
	if errors.Is(err, httpguard.ErrNoToken) {
		err = errors.New("without keys only the loopback interface is served")
	}
	return l, err
}

// Empty reports whether there is no key yet that lets anybody in.
func (s *Server) Empty() bool { return !s.opts.NoKeys && s.keys.Empty() }

// Serve serves l until ctx ends, and closes it. Calls that are under way get some time to
// end; streams are cut. The sandboxes run on, and the next server finds them.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	guard, err := httpguard.New(&s.guard)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return guard.Serve(ctx, l, guard.Handler(s.e2b), s.stop)
}

// stop ends the connections over MCP, and waits for calls of the control API.
func (s *Server) stop() {
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(s.mcp.Close)
	s.e2b.Stop(stopTime)
}

// Close leaves the sandboxes as they are.
func (s *Server) Close() error { return s.close() }
