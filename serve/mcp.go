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

// mcpDoor serves the tools over MCP. Each owner has a separate server, so that its sessions don't
// count for others.
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

// mcpOwner is the server for one owner's clients.
type mcpOwner struct {
	door    *mcpDoor
	handler *mcpserver.HTTPHandler
	places  chan struct{} // a token for each unanswered request, including streams
}

const (
	// lease is how long a connection's own sandbox outlives a killed server. It is renewed while the connection lasts.
	lease     = 10 * time.Minute
	leaseTick = 10 * time.Second // the interval of checks
	// connection is the client's name on servers whose connections have their own sandboxes. Other clients have the ID
	// of the sandbox in their path.
	connection = "connection"
	// maxWaiting is the maximum of unanswered requests of an owner, a small part of the server's maximum.
	maxWaiting = maxRequests / 16
)

func newMCPDoor(m *wisbox.Manager, o wisbox.SessionOptions, log *slog.Logger) (*mcpDoor, error) {
	set, err := m.Tools(&o)
	if err != nil {
		return nil, err
	}
	return &mcpDoor{
		set: set, opts: mcpserver.Options{Instructions: wisbox.GuidanceFor(&o, set), Logger: slog.New(quiet{log.Handler()})},
		session: func(b registry.Box) mcpserver.Session { return commonOf(b).Session }, owners: map[string]*mcpOwner{},
	}, nil
}

// serve is [e2b.Options.MCP].
func (d *mcpDoor) serve(w http.ResponseWriter, r *http.Request, key apikeys.Key, sandbox *registry.Sandbox) error {
	o, err := d.owner(key)
	if err != nil {
		return err
	}
	select { // before reading the body
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
	if sandbox != nil && sandbox.HasEnded() { // perhaps before its connections could be ended
		d.ended(sandbox)
	}
	return nil
}

var errManyWaiting = tool.Errorf(tool.Busy, "this key has %d unanswered requests over MCP, the maximum; end some, including streams, and try again", maxWaiting)

// Keys of the values in a request's context.
type (
	clientKey struct{}
	keyKey    struct{}
)

var errNoKey = tool.Errorf(tool.Unavailable, "the call's key is unknown; try again")

// owner returns the server for a key's owner, which it creates if necessary.
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

// ended ends the connections and handles of a sandbox that has ended, which frees their places.
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
	for _, o := range d.owners { // complete, since the door is closed
		all.Go(func() { _ = o.handler.Close() })
	}
	all.Wait()
}

// open returns the session of the sandbox in a connection's path, or creates one if the path has none.
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

// create creates a sandbox that lives as long as its connection, within the key's bounds.
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

// keep extends the life of a sandbox until ctx ends, at most until most. It tries again after errors: clients may
// shorten the life, and a disk may be full for a while.
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

// enter returns the sandbox as the session of a connection, whose Close calls end.
func (d *mcpDoor) enter(ctx context.Context, sandbox *registry.Sandbox, end func()) (mcpserver.Session, error) {
	box, err := sandbox.Box(ctx)
	if err != nil {
		return nil, err
	}
	return &mcpSession{d.session(box), sandbox, end}, nil
}

// mcpSession is a sandbox that other clients may end or pause.
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

// Close leaves the sandbox, or ends it if it is the connection's own.
func (s *mcpSession) Close(context.Context) error {
	s.end()
	return nil
}

// Unwrap returns the session, for its optional capabilities.
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
