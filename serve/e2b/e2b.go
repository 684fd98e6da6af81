// Package e2b speaks the protocol of E2B's clients: the control API, and the ports of
// sandboxes, of which one is envd, the API within a sandbox. It knows neither Podman nor
// how a sandbox is made.
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
	// Keys finds the key of a text. nil lets everybody in, as one owner.
	Keys func(text string) (apikeys.Key, bool)
	// Domain is what hosts of ports are below, with a port where it isn't 443 or 80. ""
	// leaves it to clients, whose requests name the sandbox in a header then, or in a
	// host below localhost.
	Domain string
	// Size is what a sandbox has.
	Size Size
	// MaxTimeout bounds what clients ask for. Default 24 h.
	MaxTimeout time.Duration
	// Sandboxes is how many an owner has at once whose key doesn't say; default 20.
	Sandboxes int
	// Creations is how many an owner makes in a minute whose key doesn't say; default 60.
	Creations int
	// Internet lets clients open the network of a sandbox. Else what they ask for is
	// accepted, and nothing is opened.
	Internet bool
	// Pauses says that sandboxes can be paused.
	Pauses bool
	// Templates are what snapshots of sandboxes become. nil makes none.
	Templates Templates
	// Builder makes templates of what clients describe, which are among Templates then.
	// nil makes none. BuildDir is an empty directory for their files.
	Builder  Builder
	BuildDir string
	// Snapshots is how many of them an owner has; default 100.
	Snapshots int
	// MCP serves a request over the Model Context Protocol: for the sandbox, or, where it is
	// nil, for one that the connection gets. An error is answered where it returns one. nil
	// has none.
	MCP func(w http.ResponseWriter, r *http.Request, key apikeys.Key, sandbox *registry.Sandbox) error
	// Metrics writes the server's own numbers for Prometheus, for keys with that right.
	// nil has none.
	Metrics func(w io.Writer) error
	// Observe is called after each request, from many goroutines at once. Default none.
	Observe func(Request)
	// Log gets a line a request, without tokens, keys and IDs. Default none.
	Log *slog.Logger
}

// Size is what a sandbox has.
type Size struct {
	CPUs             float64
	MemoryMB, DiskMB int64
	// Beside are bytes that the host may keep of it beside that disk, which count too.
	Beside int64
}

// cpuCount is a whole number for clients.
func (s Size) cpuCount() int { return max(1, int(math.Ceil(s.CPUs))) }

// Request is what is known of a request that was answered. It has no key, token or ID of
// a sandbox.
type Request struct {
	ID      string // that the client got
	Time    time.Time
	Took    time.Duration
	Method  string
	Route   string // its class: a pattern of the control API, envd, port, nothing, aborted
	Status  int
	Key     string // the id of the key that was shown, "" for none that is right
	Sandbox string // its alias, where it is about one
}

// Templates keep the files of sandboxes for others that begin with them. The methods may
// be called from many goroutines at once.
type Templates interface {
	// List are those of all owners, the newest first.
	List() ([]templates.Template, error)
	// Find finds one by its ID, whoever owns it, or an owner's by its name.
	Find(ref, owner string) (templates.Template, error)
	// Create makes one of a sandbox that runs, all or nothing.
	Create(ctx context.Context, box registry.Box, name, owner string) (templates.Template, error)
	// Remove removes one by its ID. Sandboxes that began with it stay.
	Remove(ctx context.Context, id string) error
}

const (
	// EnvdPort is the port at which a client expects the API within the sandbox.
	EnvdPort = 49983

	envdVersion = "0.6.13"         // clients leave features out of lower ones
	maxBody     = 1 << 20          // bytes of a request of the control API
	createTime  = 50 * time.Second // clients give up after a minute
)

// Server is a handler for all that clients of E2B ask. What stands before it checks the
// Host.
type Server struct {
	opts    Options
	control http.Handler
	starts  starts
	yard    *yard // nil without Builder

	mu       sync.Mutex
	stopping bool
	calls    sync.WaitGroup // of the control API
}

// New makes a Server.
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
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // of the request before
	s.logged(w, r, s.route)
}

// enter begins a call of the control API; false where the server is being stopped.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.calls.Add(1)
	}
	return !s.stopping
}

// Stop lets no call of the control API begin any more, and waits for those under way, but
// not longer than d. It ends builds, and waits until they have ended.
func (s *Server) Stop(d time.Duration) {
	if s.yard != nil {
		s.yard.cancel()
		defer s.yard.stop()
	}
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}

// starts bounds how fast owners make sandboxes and snapshots.
type starts struct {
	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// wait is how long an owner has to wait for the next one; 0 takes it.
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
