package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/serve/e2b"
	"github.com/wisbox/wisbox/tool"
)

// Bounds for the remote clients of one owner.
const (
	remoteConns  = 32
	remoteCalls  = 128
	largeRequest = 64 << 10              // bytes; an owner has few larger ones at once
	maxRequest   = 2 * tool.MaxArguments // bytes; arguments are encoded twice, and 64 secrets take 6 MiB
	largeAtOnce  = 4
	seekRate     = 5 // lookups per second of names unknown to this server
	seekBurst    = 20
	turnWait     = 20 * time.Second // for a free place; clients wait 30 s
	keyLook      = 2 * time.Second  // between two checks that a connection's key is still valid
)

// watches bounds the watches of all owners together, since the kernel limits them per user.
const watches = 32

// remoteDoor serves sessions to wisbox clients on other machines.
type remoteDoor struct {
	m        *wisbox.Manager
	guard    *httpguard.Guard
	e2b      *e2b.Server
	registry *registry.Registry
	opts     wisbox.TenantOptions // for every tenant
	note     func(e2b.Request)
	book     *podbook.Book // nil unless the sessions are Pods
	log      *slog.Logger

	watches chan struct{}

	mu     sync.Mutex
	owners map[string]*remoteOwner
	closed bool
	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	conns  sync.WaitGroup
}

// remoteOwner limits the concurrent work of one owner's clients.
type remoteOwner struct {
	conns, calls, large chan struct{}
	heavy               sync.Map // places of operations with a maximum, as chan struct{}, by name
	seeks               *rate.Limiter
	share               *httpguard.Share // of all that the owner's clients do at this server
}

func newRemoteDoor(m *wisbox.Manager, guard *httpguard.Guard, o wisbox.SessionOptions, internet bool, most time.Duration) *remoteDoor {
	o.SnapshotSpace = snapshotSpace(&o)
	d := &remoteDoor{m: m, guard: guard, watches: make(chan struct{}, watches), owners: map[string]*remoteOwner{}, opts: wisbox.TenantOptions{Session: o, Internet: internet, MaxTime: cmp.Or(most, 24*time.Hour)}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// handler returns the function for [e2b.Options.Remote].
func (d *remoteDoor) handler() func(http.ResponseWriter, *http.Request, apikeys.Key, func() (apikeys.Key, bool)) error {
	if d == nil {
		return nil
	}
	return d.serve
}

// serve serves a connection until the client disconnects, the key is revoked, or the server stops.
func (d *remoteDoor) serve(w http.ResponseWriter, r *http.Request, key apikeys.Key, again func() (apikeys.Key, bool)) error {
	o, err := d.enter(key.Owner)
	if err != nil {
		return err
	}
	defer d.conns.Done()
	select {
	case o.conns <- struct{}{}:
		defer func() { <-o.conns }()
	default:
		return tool.Errorf(tool.Busy, "this key has %d connections of other machines, which is the maximum; end some and try again", remoteConns)
	}
	stream, err := far.AcceptWeb(w, r)
	if err != nil {
		return nil //nolint:nilerr // AcceptWeb has sent the response
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(d.ctx) // r.Context ends with the handler after a takeover
	defer cancel()
	t := &tenant{d: d, of: o, owner: key.Owner, again: again, busy: map[string]int{}}
	watching.Go(func() { t.watch(ctx, cancel) })
	opts := d.opts
	opts.Tenant, opts.Caller, opts.Hidden = t, key.ID, d.hide
	_ = d.m.ServeTenant(ctx, stream, &opts) // a disconnect isn't an error of the server
	return nil
}

func (d *remoteDoor) enter(owner string) (*remoteOwner, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, tool.Errorf(tool.Unavailable, "the server is being stopped")
	}
	o := d.owners[owner]
	if o == nil {
		o = &remoteOwner{
			conns: make(chan struct{}, remoteConns), calls: make(chan struct{}, remoteCalls), large: make(chan struct{}, largeAtOnce),
			seeks: rate.NewLimiter(seekRate, seekBurst), share: d.guard.Share(e2b.ClientOf(owner).Name),
		}
		d.owners[owner] = o
	}
	d.conns.Add(1)
	return o, nil
}

// Close closes all connections. Sessions remain.
func (d *remoteDoor) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.conns.Wait()
}

// tenant is the owner of one connection's key. It implements [wisbox.Tenant].
type tenant struct {
	d     *remoteDoor
	of    *remoteOwner
	owner string
	again func() (apikeys.Key, bool)

	mu   sync.Mutex
	busy map[string]int // running operations by session ID
}

var _ wisbox.Tenant = (*tenant)(nil)

// key returns the current state of the connection's key.
func (t *tenant) key() (apikeys.Key, error) {
	key, ok := t.again()
	if !ok || key.Owner != t.owner {
		return key, tool.Errorf(tool.Permission, "the API key was revoked, or is over its time; use another one")
	}
	return key, nil
}

// count adds n to the number of running operations of a session.
func (t *tenant) count(session string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[session] += n; t.busy[session] == 0 {
		delete(t.busy, session)
	}
}

// stay extends the sessions with running operations. A Pod's lifetime is fixed at its creation.
func (t *tenant) stay() {
	if t.d.book != nil {
		return
	}
	t.mu.Lock()
	ids := slices.Collect(maps.Keys(t.busy))
	t.mu.Unlock()
	for _, id := range ids {
		if s, err := t.named(id); err == nil {
			_ = t.extend(s) // the next tick retries
		}
	}
}

// extend extends a used session to the lifetime of a new one. A Pod's lifetime is fixed at its creation.
func (t *tenant) extend(s *registry.Sandbox) error {
	most := t.d.opts.MaxTime
	if t.d.book != nil {
		return nil
	}
	if time.Until(s.Record().End) > most-min(most/10, time.Minute) {
		return nil
	}
	return s.SetEnd(most, true)
}

// watch ends the connection and its operations once the key is invalid.
func (t *tenant) watch(ctx context.Context, end func()) {
	tick := time.NewTicker(keyLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := t.key(); err != nil {
				end()
				return
			}
			t.stay()
		case <-ctx.Done():
			return
		}
	}
}

// Begin implements [wisbox.Tenant].
func (t *tenant) Begin(size int) (end func(), err error) {
	if size > maxRequest {
		return nil, tool.Errorf(tool.TooLarge, "the request has %d bytes; at most %d are taken", size, maxRequest)
	}
	select {
	case t.of.calls <- struct{}{}:
	default:
		return nil, tool.Errorf(tool.Busy, "this key has %d calls at once, which is the maximum; wait for some to end, and try again", remoteCalls)
	}
	done := func() {}
	if size > largeRequest {
		if done, err = t.of.turn(t.d.ctx, t.of.large, "large requests"); err != nil {
			<-t.of.calls
			return nil, err
		}
	}
	free, err := t.of.share.Take(int64(size))
	if err != nil {
		done()
		<-t.of.calls
		return nil, asBusy(err)
	}
	return func() { free(); done(); <-t.of.calls }, nil
}

// asBusy returns an error of the owner's share as clients of remote sessions know it.
func asBusy(err error) error {
	if !errors.Is(err, httpguard.ErrBusy) {
		return err
	}
	return tool.Errorf(tool.Busy, "%s", tool.AsError(err).Message).Because(err)
}

// turn waits for a free place.
func (o *remoteOwner) turn(ctx context.Context, places chan struct{}, of string) (done func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		o.share.Slowed(fmt.Sprintf("a key has %d %s at once", cap(places), of))
	}
	wait := time.NewTimer(turnWait)
	defer wait.Stop()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-wait.C:
	case <-ctx.Done():
	}
	return nil, tool.Errorf(tool.Busy, "this key has %d %s at once, which is the maximum; wait for some to end, and try again", cap(places), of)
}

// placesOf returns the places of an operation of which an owner may do only some at once.
func (o *remoteOwner) placesOf(a wisbox.Admission) chan struct{} {
	places, ok := o.heavy.Load(a.Op)
	if !ok {
		places, _ = o.heavy.LoadOrStore(a.Op, make(chan struct{}, a.AtOnce))
	}
	return places.(chan struct{})
}

// Admit implements [wisbox.Tenant].
func (t *tenant) Admit(ctx context.Context, a wisbox.Admission) (done func(error), err error) {
	began := time.Now()
	key, err := t.key()
	if err != nil {
		return nil, err
	}
	if err := t.of.share.Wait(ctx); err != nil {
		return nil, asBusy(err)
	}
	end := func() {}
	if a.AtOnce > 0 {
		if end, err = t.of.turn(ctx, t.of.placesOf(a), "calls of "+a.Op); err != nil {
			return nil, err
		}
	}
	if a.Op == "watch" {
		own := end
		all, err := t.of.turn(ctx, t.d.watches, "watches with all others")
		if err != nil {
			own()
			return nil, err
		}
		end = func() { all(); own() }
	}
	t.count(a.Session, 1)
	alias := t.alias(a.Session)
	return func(err error) {
		t.count(a.Session, -1)
		end()
		t.d.note(e2b.Request{
			ID: e2b.RequestID(), Time: began.UTC(), Took: time.Since(began), Method: http.MethodPost, Route: "remote " + a.Op,
			Status: e2b.StatusOf(err), Key: key.ID, Sandbox: alias,
		})
	}, nil
}

// Owner implements [wisbox.Tenant].
func (t *tenant) Owner() string { return t.owner }

// session returns the name of a sandbox's session: the ID, or a name derived from it.
func (d *remoteDoor) session(id string) string {
	if d.book == nil {
		return id
	}
	return d.book.Session(id)
}

// alias returns the session's alias for the audit log.
func (t *tenant) alias(session string) string {
	if session == "" {
		return "" // without a look at the sandboxes
	}
	if s, err := t.named(session); err == nil {
		return s.Alias()
	}
	return registry.Alias(session)
}

// hide logs an error of the cluster, which only operators may see.
func (d *remoteDoor) hide(err error) {
	d.log.Warn("an operation of a far client failed on the cluster", "error", registry.Quiet(err))
}

// hidden returns err without details of the cluster.
func (t *tenant) hidden(err error) error {
	if t.d.book == nil || tool.KindOf(err) != tool.Unavailable {
		return err
	}
	t.d.hide(err)
	return tool.Errorf(tool.Unavailable, "the server can't reach its cluster now; try again")
}

// Find implements [wisbox.Tenant]. It extends the session's lifetime.
func (t *tenant) Find(name string) (id string, err error) {
	s, ok := t.d.registry.FindNamed(t.owner, name)
	if !ok && t.d.book != nil {
		if !t.of.seeks.Allow() {
			return "", tool.Errorf(tool.Busy, "this key asks for too many sessions that the server doesn't know; try again in a second")
		}
		if s, ok, err = t.d.registry.SeekNamed(t.d.ctx, t.owner, name); err != nil {
			return "", t.hidden(err)
		}
	}
	if ok {
		err = t.extend(s)
	}
	switch {
	case !ok || tool.KindOf(err) == tool.NotFound:
		return "", tool.Errorf(tool.NotFound, "session %q not found; `wisbox ls` shows those there are", name).In("session")
	case err != nil: // such as a full disk: the client must be able to make room
		t.d.log.Warn("note the use of a session", "sandbox", s.Alias(), "error", registry.Quiet(err))
	}
	return t.d.session(s.ID()), nil
}

// Names implements [wisbox.Tenant].
func (t *tenant) Names() map[string]string {
	all := map[string]string{}
	for _, s := range t.d.registry.Named(t.owner) {
		all[t.d.session(s.ID())] = s.Record().Name
	}
	return all
}

// named finds a session by its ID.
func (t *tenant) named(id string) (*registry.Sandbox, error) {
	for _, s := range t.d.registry.Named(t.owner) {
		if t.d.session(s.ID()) == id {
			return s, nil
		}
	}
	return nil, tool.Errorf(tool.NotFound, "the session has ended").In("session")
}

// Rename implements [wisbox.Tenant].
func (t *tenant) Rename(id, to string) error {
	s, err := t.named(id)
	if err != nil {
		return err
	}
	return t.d.registry.Rename(s, to)
}

// Remove implements [wisbox.Tenant].
func (t *tenant) Remove(id string) error {
	s, err := t.named(id)
	if err != nil {
		return err
	}
	_, err = t.d.registry.Remove(t.d.ctx, s)
	return t.hidden(err)
}

// Forget implements [wisbox.Tenant].
func (t *tenant) Forget(name string) error {
	s, ok := t.d.registry.FindHalf(t.owner, name)
	if !ok {
		return tool.Errorf(tool.NotFound, "no session of that name is being created").In("session")
	}
	_, err := t.d.registry.Remove(t.d.ctx, s)
	return t.hidden(err)
}

// Create implements [wisbox.Tenant]. It reserves all places by nested calls of CreateNamed, and then opens
// the sessions.
func (t *tenant) Create(ctx context.Context, names []string, o *wisbox.SessionOptions, open func(context.Context, []string) error) error {
	limits := o.Limits.WithDefaults()
	var ids []string
	var failed error // the error of open
	var next func(ctx context.Context) error
	next = func(ctx context.Context) error {
		if len(ids) == len(names) {
			failed = open(ctx, ids)
			return failed
		}
		key, err := t.key()
		if err != nil {
			return err
		}
		quota, err := t.d.e2b.Bounds(key)
		if err != nil {
			return err
		}
		quota.Snapshots = 0 // a session isn't a template
		rec := registry.Record{
			Name: names[len(ids)], Owner: t.owner, Template: "remote", CPUs: limits.CPUs, Memory: limits.Memory, Disk: limits.Disk, Beside: snapshotSpace(o) + besideDisk,
		}
		_, err = t.d.registry.CreateNamed(ctx, rec, t.d.opts.MaxTime, quota, func(ctx context.Context, rec registry.Record) (registry.Box, error) {
			ids = append(ids, t.d.session(rec.ID))
			if err := t.d.onPod(o, rec); err != nil {
				return nil, err
			}
			return away{}, next(ctx)
		})
		return err
	}
	err := next(ctx)
	if err != nil && failed == nil {
		err = t.hidden(err)
	}
	if err != nil { // some of several sessions may exist
		for _, id := range ids {
			_ = t.Remove(id)
		}
	}
	return err
}

// onPod adds the session's record to its Pod's notes and limits the TTL, so the cluster ends the Pod even
// without a server.
func (d *remoteDoor) onPod(o *wisbox.SessionOptions, rec registry.Record) (err error) {
	if d.book == nil {
		return nil
	}
	if o.TTL <= 0 || o.TTL > d.opts.MaxTime {
		o.TTL = d.opts.MaxTime
	}
	o.Pod, err = d.book.Notes(rec)
	return err
}

// away is a session that this process doesn't keep open; each operation opens it.
type away struct{}

// Dial implements [registry.Box].
func (away) Dial(context.Context, uint16) (net.Conn, error) {
	return nil, tool.Errorf(tool.Unsupported, "the ports of such a session are reached with wisbox port")
}

// Close implements [registry.Box].
func (away) Close(context.Context) error { return nil }

// Keep implements [wisbox.Tenant].
func (t *tenant) Keep(ctx context.Context, id, name string, create func(context.Context) (wisbox.Template, error)) (made wisbox.Template, err error) {
	if e2b.IsTemplate(name) {
		return made, tool.Errorf(tool.Invalid, "name is that of a template that every key has; take another one").In("name")
	}
	key, err := t.key()
	if err != nil {
		return made, err
	}
	s, err := t.named(id)
	if err != nil {
		return made, err
	}
	quota, err := t.d.e2b.Bounds(key)
	if err != nil {
		return made, err
	}
	room, err := t.d.registry.Reserve(ctx, s, quota)
	if err != nil {
		return made, err
	}
	defer room.Release()
	if made, err = create(ctx); err != nil {
		return made, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := room.Fits(ctx, made.Disk); err != nil {
		return wisbox.Template{}, errors.Join(err, t.d.m.RemoveTemplate(ctx, made.ID))
	}
	return made, nil
}
