package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/mcpserver"
	"github.com/wisbox/wisbox/serve/e2b"
	"github.com/wisbox/wisbox/tool"
)

// mcpDoor serves the tools over MCP. Each owner has a server of its own: neither its
// sessions nor how many there are is another's affair.
type mcpDoor struct {
	e2b        *e2b.Server
	registry   *registry.Registry
	set        *tool.Set
	opts       mcpserver.Options // of each server
	maxTimeout time.Duration
	session    func(registry.Box) mcpserver.Session

	mu     sync.Mutex
	closed bool
	owners map[string]*mcpOwner
}

// mcpOwner is what one owner's clients reach.
type mcpOwner struct {
	door    *mcpDoor
	handler *mcpserver.HTTPHandler
	places  chan struct{} // one for each request that isn't answered yet, also for streams
}

const (
	// lease is how long a connection's own sandbox outlives a server that was killed. It is
	// renewed while the connection lasts.
	lease     = 10 * time.Minute
	leaseTick = 10 * time.Second // between two looks at whether it needs that
	// connection is the client, for its server, whose sandboxes are its connections' own.
	// The others are named by the ID of the sandbox that their path has.
	connection = "connection"
	// maxWaiting is how many requests of an owner may wait for their answers at once: a small
	// part of those that the server has.
	maxWaiting = maxRequests / 16
)

func newMCPDoor(m *wisbox.Manager, o wisbox.SessionOptions, log *slog.Logger) (*mcpDoor, error) {
	set, err := m.Tools(&o)
	if err != nil {
		return nil, err
	}
	return &mcpDoor{
		set: set, opts: mcpserver.Options{Instructions: wisbox.GuidanceFor(&o, set), Logger: slog.New(quiet{log.Handler()})},
		session: func(b registry.Box) mcpserver.Session { return b.(box).Session }, owners: map[string]*mcpOwner{},
	}, nil
}

// serve is [e2b.Options.MCP].
func (d *mcpDoor) serve(w http.ResponseWriter, r *http.Request, key apikeys.Key, sandbox *registry.Sandbox) error {
	o, err := d.owner(key)
	if err != nil {
		return err
	}
	select { // before any of the body is read
	case o.places <- struct{}{}:
		defer func() { <-o.places }()
	default:
		return errManyWaiting
	}
	client := connection
	if sandbox != nil {
		client = sandbox.ID()
	}
	ctx := context.WithValue(context.WithValue(r.Context(), clientKey{}, client), keyKey{}, key)
	o.handler.ServeHTTP(w, r.WithContext(ctx))
	if sandbox != nil && sandbox.HasEnded() { // maybe before there was a connection to end
		d.ended(sandbox)
	}
	return nil
}

var errManyWaiting = tool.Errorf(tool.Busy, "this key has %d requests over MCP that wait for their answers, which is the maximum; end some, streams too, and try again", maxWaiting)

// What a request's context has.
type (
	clientKey struct{}
	keyKey    struct{}
)

var errNoKey = tool.Errorf(tool.Unavailable, "the call's key is unknown; try again")

// owner finds or makes what a key's owner reaches.
func (d *mcpDoor) owner(key apikeys.Key) (*mcpOwner, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, tool.Errorf(tool.Unavailable, "the server is being stopped")
	}
	o := d.owners[key.Owner]
	if o == nil {
		o = &mcpOwner{door: d, places: make(chan struct{}, maxWaiting)}
		opts := d.opts
		opts.Open = o.open
		var err error
		o.handler, err = mcpserver.New(d.set, &opts).Handler(&mcpserver.HTTPOptions{
			Owner: func(r *http.Request) string { client, _ := r.Context().Value(clientKey{}).(string); return client },
		})
		if err != nil {
			return nil, err
		}
		d.owners[key.Owner] = o
	}
	return o, nil
}

// ended ends the connections and handles of a sandbox that has ended: none keeps a place.
func (d *mcpDoor) ended(sandbox *registry.Sandbox) {
	d.mu.Lock()
	o := d.owners[sandbox.Record().Owner]
	d.mu.Unlock()
	if o == nil {
		return
	}
	o.handler.End(func(client string, s mcpserver.Session) bool {
		own, ok := s.(*mcpSession)
		return client == sandbox.ID() || ok && own.sandbox == sandbox
	})
}

// Close ends all connections, and removes their own sandboxes.
func (d *mcpDoor) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	var all sync.WaitGroup
	for _, o := range d.owners { // which nobody adds to any more
		all.Go(func() { _ = o.handler.Close() })
	}
	all.Wait()
}

// open makes the session of a connection, or takes that of the sandbox that its path names.
func (o *mcpOwner) open(ctx context.Context) (mcpserver.Session, error) {
	client := mcpserver.Owner(ctx)
	if client == connection {
		return o.create(ctx)
	}
	sandbox, ok := o.door.registry.Find(client)
	if !ok {
		return nil, errEnded
	}
	return o.door.enter(ctx, sandbox, func() {})
}

// create makes a sandbox that lives as long as its connection, within the key's bounds.
func (o *mcpOwner) create(ctx context.Context) (mcpserver.Session, error) {
	key, ok := ctx.Value(keyKey{}).(apikeys.Key) // of the call that needs it
	if !ok {
		return nil, errNoKey
	}
	sandbox, err := o.door.e2b.Create(ctx, key, lease)
	if err != nil {
		return nil, err
	}
	kept, stop := context.WithCancel(context.WithoutCancel(ctx))
	go keep(kept, sandbox, time.Now().Add(o.door.maxTimeout))
	end := func() {
		stop()
		o.door.registry.Kill(sandbox)
	}
	s, err := o.door.enter(ctx, sandbox, end)
	if err != nil {
		end()
	}
	return s, err
}

// keep has a sandbox live on until ctx ends, but not beyond a time. Others may bring its end
// nearer, and a disk may be full for a while.
func keep(ctx context.Context, sandbox *registry.Sandbox, most time.Time) {
	tick := time.NewTicker(leaseTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if time.Until(sandbox.Record().End) > lease/2 {
				continue
			}
			if err := sandbox.SetEnd(min(lease, time.Until(most)), true); tool.KindOf(err) == tool.NotFound {
				return // it has ended
			}
		case <-ctx.Done():
			return
		}
	}
}

// enter is the sandbox as the session of a connection; end is called at its close.
func (d *mcpDoor) enter(ctx context.Context, sandbox *registry.Sandbox, end func()) (mcpserver.Session, error) {
	box, err := sandbox.Box(ctx)
	if err != nil {
		return nil, err
	}
	return &mcpSession{d.session(box), sandbox, end}, nil
}

// mcpSession is a sandbox that may end or be paused by others.
type mcpSession struct {
	mcpserver.Session

	sandbox *registry.Sandbox
	end     func()
}

var (
	errEnded  = tool.Errorf(tool.Closed, "the sandbox has ended; connect again")
	errPaused = tool.Errorf(tool.Conflict, "the sandbox is paused; resume it by the SDK's connect, then call again")
)

func (s *mcpSession) Call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
	switch s.sandbox.Record().State {
	case registry.Running:
		return s.Session.Call(ctx, name, args)
	case registry.Paused:
		return nil, errPaused
	}
	return nil, errEnded
}

// Close leaves the sandbox, or ends it where it is the connection's own.
func (s *mcpSession) Close(context.Context) error {
	s.end()
	return nil
}

// Unwrap returns the session, for what else it can do.
func (s *mcpSession) Unwrap() mcpserver.Session { return s.Session }

// quiet is a log without the IDs of sandboxes.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(slog.String(a.Key, registry.Quiet(errors.New(fmt.Sprint(a.Value.Any())))))
		return true
	})
	return q.Handler.Handle(ctx, out)
}
