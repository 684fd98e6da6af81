// Package e2b implements the protocol of E2B's clients: the control API, and the ports of
// sandboxes, one of which is envd, the API within a sandbox. It knows neither Podman nor how
// sandboxes are created.
package e2b

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/templates"
)

// Options of [New]. Registry is required.
type Options struct {
	Registry *registry.Registry
	// Keys returns the key with the given text. nil admits every client, as one owner.
	Keys func(text string) (apikeys.Key, bool)
	// Domain is the domain of the ports' hosts, with a port unless that is 443 or 80. If it is
	// "", requests name the sandbox in a header, or in a host below localhost.
	Domain string
	// Size is the size of each sandbox.
	Size Size
	// MaxTimeout bounds the timeouts that clients request. Default 24 h.
	MaxTimeout time.Duration
	// Sandboxes is the maximum of an owner at once, unless the key has its own; default 20.
	Sandboxes int
	// Creations is the maximum of an owner per minute, unless the key has its own; default 60.
	Creations int
	// Internet lets clients open the network of a sandbox. Otherwise their requests for it are
	// accepted, but nothing is opened.
	Internet bool
	// Pauses reports whether sandboxes can be paused.
	Pauses bool
	// Templates stores snapshots of sandboxes. nil means no snapshots.
	Templates Templates
	// Builder builds templates that clients describe, and adds them to Templates. nil means no
	// builds. BuildDir is an empty directory for their files.
	Builder  Builder
	BuildDir string
	// Snapshots is the maximum of snapshots of an owner; default 100.
	Snapshots int
	// MCP serves a request over the Model Context Protocol, for the given sandbox. If sandbox is nil, the connection
	// gets its own. An error that MCP returns is the answer. nil means no MCP.
	MCP func(w http.ResponseWriter, r *http.Request, key apikeys.Key, sandbox *registry.Sandbox) error
	// Remote serves sessions to a wisbox on another machine, over a connection that it takes over. again looks up the
	// request's key again, which may be revoked meanwhile. nil means no such sessions.
	Remote func(w http.ResponseWriter, r *http.Request, key apikeys.Key, again func() (apikeys.Key, bool)) error
	// Metrics writes the server's own metrics for Prometheus, for keys with that right. nil
	// means none.
	Metrics func(w io.Writer) error
	// Observe is called after each request, from many goroutines at once. Default none.
	Observe func(Request)
	// Log gets a line for each request, without tokens, keys and IDs. Default none.
	Log *slog.Logger
}

// Size is the size of a sandbox.
type Size struct {
	CPUs             float64
	MemoryMB, DiskMB int64
	// Beside is the maximum of bytes that the host keeps for a sandbox besides its disk. They count toward quotas as
	// well.
	Beside int64
}

// cpuCount returns a whole number for clients.
func (s Size) cpuCount() int { return max(1, int(math.Ceil(s.CPUs))) }

// Request describes a request that was answered. It has no key, token or ID of a sandbox.
type Request struct {
	ID      string // as sent to the client
	Time    time.Time
	Took    time.Duration
	Method  string
	Route   string // its class: a pattern of the control API, envd, port, nothing, aborted
	Status  int
	Key     string // the ID of the request's key, "" without a valid one
	Sandbox string // alias of its sandbox, if any
}

// Templates stores files of sandboxes, with which new sandboxes begin. Its methods may be called from many goroutines
// at once.
type Templates interface {
	// List returns the templates of all owners, the newest first.
	List() ([]templates.Template, error)
	// Find finds a template by its ID, regardless of its owner, or an owner's template by its name.
	Find(ref, owner string) (templates.Template, error)
	// Create creates a template from a running sandbox, all or nothing.
	Create(ctx context.Context, box registry.Box, name, owner string) (templates.Template, error)
	// Remove removes a template by its ID. Sandboxes that began with it stay.
	Remove(ctx context.Context, id string) error
}

const (
	// EnvdPort is the port at which a client expects the API within the sandbox.
	EnvdPort = 49983

	envdVersion = "0.6.13"         // clients disable features for lower versions
	maxBody     = 1 << 20          // bytes of a request of the control API
	maxMetadata = 16 << 10         // bytes of a sandbox's metadata, which each list repeats
	maxEnv      = 64 << 10         // bytes of a sandbox's variables
	createTime  = 50 * time.Second // clients give up after a minute
)

// Server is a handler for all requests of E2B's clients. The caller puts an [httpguard.Guard] before it.
type Server struct {
	opts    Options
	control http.Handler
	starts  starts
	yard    *yard // nil without Builder

	mu       sync.Mutex
	stopping bool
	calls    sync.WaitGroup // of the control API
	requests sync.WaitGroup // of all kinds, until they are logged
}

// New returns a Server.
func New(opts *Options) *Server {
	s := &Server{opts: *opts}
	o := &s.opts
	if o.MaxTimeout <= 0 {
		o.MaxTimeout = 24 * time.Hour
	}
	if o.Sandboxes <= 0 {
		o.Sandboxes = 20
	}
	if o.Creations <= 0 {
		o.Creations = 60
	}
	if o.Snapshots <= 0 {
		o.Snapshots = 100
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Builder != nil {
		s.yard = newYard(s)
	}
	s.control = s.routes()
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	defer s.requests.Done()
	s.logged(w, r, s.route)
}

// Drain waits until all requests are answered and logged, at most for d. Call it when no new ones
// can come.
func (s *Server) Drain(d time.Duration) { waitFor(&s.requests, d) }

// waitFor waits for a group, at most for d.
func waitFor(group *sync.WaitGroup, d time.Duration) {
	ended := make(chan struct{})
	go func() {
		group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}

// enter begins a call of the control API. It returns false if the server is being stopped.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.calls.Add(1)
	}
	return !s.stopping
}

// Stop refuses new calls of the control API and waits for the running ones, at most for d. It
// ends builds, and waits until they have ended.
func (s *Server) Stop(d time.Duration) {
	if s.yard != nil {
		s.yard.cancel()
		defer s.yard.stop()
	}
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	waitFor(&s.calls, d)
}

// starts limits the rate at which owners create sandboxes and snapshots.
type starts struct {
	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// wait returns how long an owner has to wait for the next creation. If it is 0, the creation is
// counted.
func (s *starts) wait(owner string, perMinute int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*rate.Limiter{}
	}
	l, ok := s.all[owner]
	if !ok || l.Burst() != perMinute {
		l = rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute)
		s.all[owner] = l
	}
	take := l.Reserve()
	delay := take.Delay()
	if delay > 0 {
		take.Cancel()
	}
	return delay
}
