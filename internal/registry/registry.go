// Package registry knows the sandboxes of a server: whose each is, until when it lives
// and whether it runs. It ends them in time, and finds them again after a restart. How a
// sandbox is made is the [Engine]'s affair, and how clients speak to it the [Front]'s.
package registry

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/pool"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/tool"
)

// Engine is where sandboxes run. Its methods may be called from many goroutines at once.
type Engine interface {
	// Create makes a sandbox that runs. On an error nothing of it is left.
	Create(ctx context.Context, r Record) (Box, error)
	// Open finds one that was made before; where it is gone the error is not_found, and
	// nothing else is.
	Open(ctx context.Context, id string) (Box, error)
	// Remove ends one with its programs and files. One that is gone is no error.
	Remove(ctx context.Context, id string) error
	// IDs are those of all that exist, of others too.
	IDs(ctx context.Context) ([]string, error)
}

// Box is one sandbox of an [Engine]. Its methods may be called from many goroutines at
// once.
type Box interface {
	// Dial connects to a port of 127.0.0.1 in the sandbox; where nothing listens the
	// error is not_found.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	// Close leaves the sandbox; it runs on.
	Close(ctx context.Context) error
}

// Pauser is a [Box] whose programs can stand still, keep their memory, and go on.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Forker is a [Box] of which others can be made, that begin with its files.
type Forker interface {
	// Fork makes one that runs, with the ID and the rules of the network of r.
	Fork(ctx context.Context, r Record) (Box, error)
}

// Gauger is a [Box] that reports what it takes now.
type Gauger interface {
	Gauge(ctx context.Context) (Gauge, error)
}

// Networker is a [Box] whose rules of the network can be replaced while it runs.
type Networker interface {
	SetNetwork(ctx context.Context, allow, deny []string) error
	// Network are the rules that hold.
	Network(ctx context.Context) (allow, deny []string, err error)
}

// Front answers the requests for one sandbox, from its start or resume to its end or
// pause.
type Front interface {
	// ServePort answers a request for a port of the sandbox.
	ServePort(w http.ResponseWriter, r *http.Request, port uint16)
	// Close frees what the front holds. Nobody uses it any more.
	Close()
}

// Options of [Open]. Engine, Dir and Front are required.
type Options struct {
	Engine Engine
	// Dir is a directory for this registry alone. It is made where it is missing.
	Dir string
	// Front makes what answers for a sandbox. done is closed when it ends or is paused.
	Front func(s *Sandbox, box Box, done <-chan struct{}) Front
	// Size is what a sandbox takes whose record doesn't say, as an older version's.
	Size Quota
	// Beside is what the host may keep beside the disk of such a sandbox.
	Beside int64
	// Disk bounds what the sandboxes and snapshots of all owners may take together, in
	// bytes; 0 is no bound. Sandboxes count until they are removed.
	Disk int64
	// Kept is the disk that the snapshots of all owners take. It is needed with Disk.
	Kept func() (int64, error)
	// Ended is called for a sandbox that has ended, after its clients lost it. Default none.
	Ended func(*Sandbox)
	// Ready has sandboxes of Size made in advance. Default none.
	Ready Ready
	// SampleEvery is how often is looked what sandboxes take. Default 5 s.
	SampleEvery time.Duration
	// Log gets what clients don't see. Default none.
	Log *slog.Logger
}

// Registry holds the sandboxes. Its methods may be called from many goroutines at once.
type Registry struct {
	opts   Options
	dir    string // of the records
	secret []byte
	held   *flock.Flock
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  *pool.Pool[*Sandbox] // nil without one

	mu     sync.Mutex
	closed bool
	all    map[string]*Sandbox

	change   *lock.Mutex         // held by who claims, reserves or releases: what is being made is always counted
	accounts map[string]*account // by owner: who has a key
}

const (
	removeTime  = 2 * time.Minute  // of one try
	stopGrace   = 5 * time.Second  // of removals when the server stops; the next start does the rest
	retryAfter  = 30 * time.Second // a removal or a pause that failed
	lookAfter   = time.Minute      // at which sandboxes are gone
	secretBytes = 32
)

// ErrInUse is that of a directory that another registry has open.
var ErrInUse = errors.New("another server uses this directory")

// Open reads the records of Dir. Sandboxes whose time ended meanwhile end now.
func Open(ctx context.Context, opts *Options) (_ *Registry, err error) {
	r := &Registry{opts: *opts, dir: filepath.Join(opts.Dir, "sandboxes"), all: map[string]*Sandbox{}, change: lock.New(), accounts: map[string]*account{}}
	if r.opts.Log == nil {
		r.opts.Log = slog.New(slog.DiscardHandler)
	}
	if r.opts.SampleEvery <= 0 {
		r.opts.SampleEvery = sampleEvery
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	r.held = flock.New(filepath.Join(opts.Dir, "lock"), flock.SetPermissions(0o600))
	if ok, err := r.held.TryLock(); err != nil || !ok {
		return nil, cmp.Or(err, ErrInUse)
	}
	cleanup.Close(r.held)
	if r.secret, err = secretOf(filepath.Join(opts.Dir, "secret.json")); err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := r.load(ctx); err != nil {
		r.cancel()
		return nil, err
	}
	r.tasks.Go(r.keepLooking)
	r.tasks.Go(r.keepSampling)
	r.keepReady()
	cleanup.Keep()
	return r, nil
}

// secretOf is what tokens are made of: a sandbox's are the same after a restart.
func secretOf(path string) (secret []byte, err error) {
	err = jsonfile.Read(path, &secret)
	if errors.Is(err, fs.ErrNotExist) {
		secret = make([]byte, secretBytes)
		_, _ = rand.Read(secret) // it never fails
		err = jsonfile.Write(path, secret)
	}
	if err == nil && len(secret) < secretBytes {
		err = errors.New("the server's secret is cut short; remove its file, which changes all tokens")
	}
	return secret, err
}

// Records are those of a server's directory, also of one that another process serves;
// which can't be read are left out.
func Records(dir string) (all []Record, err error) {
	dir = filepath.Join(dir, "sandboxes")
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		if rec, err := readRecord(dir, f.Name()); err == nil && filepath.Ext(f.Name()) == recordExt {
			all = append(all, rec)
		}
	}
	return all, err
}

const recordExt = ".json"

func readRecord(dir, name string) (rec Record, err error) {
	err = jsonfile.Read(filepath.Join(dir, name), &rec)
	if err == nil && (!IsID(rec.ID) || name != rec.ID+recordExt) {
		err = errors.New("its ID is not its name")
	}
	return rec, err
}

func (r *Registry) load(ctx context.Context) error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) != recordExt {
			continue
		}
		rec, err := readRecord(r.dir, f.Name())
		if err != nil {
			r.opts.Log.Error("a sandbox's record can't be read; it is left alone", "error", Quiet(err))
			continue
		}
		rec.CPUs = cmp.Or(rec.CPUs, r.opts.Size.CPUs)
		rec.Memory = cmp.Or(rec.Memory, r.opts.Size.Memory)
		rec.Disk = cmp.Or(rec.Disk, r.opts.Size.Disk)
		rec.Beside = cmp.Or(rec.Beside, r.opts.Beside)
		s := r.newSandbox(rec)
		s.spare = rec.State == creating && rec.Owner == "" // as before: it counts for nobody while it is removed
		r.all[rec.ID] = s
	}
	r.look(ctx)
	for _, s := range r.list() {
		if s.Record().State == creating || s.Record().State == ending {
			r.remove(s)
			continue
		}
		s.arm()
	}
	return nil
}

func (r *Registry) list() []*Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Sandbox, 0, len(r.all))
	for _, s := range r.all {
		all = append(all, s)
	}
	return all
}

// keepLooking finds out which sandboxes somebody else has removed.
func (r *Registry) keepLooking() {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.look(r.ctx)
		case <-r.ctx.Done():
			return
		}
	}
}

// look forgets the sandboxes that the engine no longer has.
func (r *Registry) look(ctx context.Context) {
	before := r.All() // first: what begins meanwhile may not be among the IDs
	ids, err := r.opts.Engine.IDs(ctx)
	if err != nil {
		r.opts.Log.Warn("list the sandboxes", "error", Quiet(err))
		return
	}
	for _, s := range before {
		if !slices.Contains(ids, s.id) {
			r.opts.Log.Info("a sandbox is gone that this server did not end", "sandbox", s.Alias())
			r.end(s)
		}
	}
}

// Create makes a sandbox for its owner, who may have no more than the quota at once;
// State, ID and Started are filled in, and End is that long from now.
func (r *Registry) Create(ctx context.Context, rec Record, life time.Duration, quota Quota) (*Sandbox, error) {
	return r.create(ctx, rec, life, quota, nil)
}

// create makes a sandbox by begin, or, where it is nil, takes one that is ready or has the
// engine make it.
func (r *Registry) create(ctx context.Context, rec Record, life time.Duration, quota Quota, begin func(context.Context, Record) (Box, error)) (*Sandbox, error) {
	rec = rec.clone()
	rec.ID, rec.State, rec.Started = newID(), creating, now()
	rec.End = rec.Started.Add(life)
	s := r.newSandbox(rec)
	if err := r.claim(ctx, s, quota); err != nil {
		return nil, err
	}
	var box Box
	var err error
	if begin == nil {
		begin = r.opts.Engine.Create
		s, box = r.take(ctx, s)
	}
	if box == nil {
		if err = r.save(rec); err == nil {
			box, err = begin(ctx, rec)
		}
	}
	if err != nil {
		r.remove(s)
		return nil, err
	}
	s.mu.Lock()
	s.box, s.rec.State, s.rec.Started = box, Running, now()
	s.rec.End = s.rec.Started.Add(life)
	rec = s.rec
	s.mu.Unlock()
	if err := r.save(rec); err != nil {
		r.end(s)
		return nil, err
	}
	s.arm()
	return s, nil
}

// claim takes a place for a sandbox that is being made.
func (r *Registry) claim(ctx context.Context, s *Sandbox, quota Quota) error {
	a, done, err := r.account(ctx, s.owner)
	if err != nil {
		return err
	}
	defer done()
	_, kept, err := quota.kept()
	if err != nil {
		return err
	}
	left, err := r.left()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return tool.Errorf(tool.Unavailable, "the server is being stopped")
	}
	taken := r.taken(s.owner)
	taken.Disk += kept + a.disk
	if err := quota.check(taken, s.rec); err != nil {
		return err
	}
	if s.rec.allDisk() > left {
		return r.errFull()
	}
	r.all[s.id] = s
	return nil
}

// taken is what the sandboxes of an owner may take together. mu is held.
func (r *Registry) taken(owner string) (sum Quota) {
	for _, other := range r.all {
		if rec := other.Record(); other.owner == owner && rec.Counts() {
			sum.Add(rec)
		}
	}
	return sum
}

// Taken is what the sandboxes of an owner may take together, those too that are being made.
func (r *Registry) Taken(owner string) Quota {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken(owner)
}

// Fork makes a sandbox that begins with the files of another, and its rules of the network
// as edit changes them. Those of the other don't change meanwhile.
func (r *Registry) Fork(ctx context.Context, from *Sandbox, life time.Duration, quota Quota, edit func(*Rules)) (*Sandbox, error) {
	if err := from.change.Lock(ctx); err != nil {
		return nil, err
	}
	defer from.change.Unlock()
	if err := from.learn(ctx); err != nil {
		return nil, err
	}
	rec := from.Record()
	edit(&rec.Rules)
	return r.create(ctx, rec, life, quota, func(ctx context.Context, rec Record) (Box, error) {
		box, err := from.open(ctx)
		if err != nil {
			return nil, err
		}
		forker, ok := box.(Forker)
		if !ok {
			return nil, tool.Errorf(tool.Unsupported, "this server can't fork sandboxes")
		}
		return forker.Fork(ctx, rec)
	})
}

// Find finds a sandbox that runs or is paused, whoever owns it.
func (r *Registry) Find(id string) (*Sandbox, bool) {
	r.mu.Lock()
	s := r.all[id]
	r.mu.Unlock()
	return s, s != nil && s.visible()
}

// Owned are an owner's sandboxes, the newest first.
func (r *Registry) Owned(owner string) []*Sandbox {
	return r.those(func(s *Sandbox) bool { return s.owner == owner })
}

// All are those of all owners.
func (r *Registry) All() []*Sandbox { return r.those(func(*Sandbox) bool { return true }) }

func (r *Registry) those(which func(*Sandbox) bool) []*Sandbox {
	all := slices.DeleteFunc(r.list(), func(s *Sandbox) bool { return !which(s) || !s.visible() })
	slices.SortFunc(all, func(a, b *Sandbox) int {
		return cmp.Or(b.started().Compare(a.started()), strings.Compare(b.id, a.id))
	})
	return all
}

// Kill ends a sandbox. From its return on it is gone for its clients; what it leaves
// behind is removed beside, whatever its programs do. It reports whether it was there.
func (r *Registry) Kill(s *Sandbox) bool { return r.end(s) }

// end takes a sandbox out of sight, cuts what goes on with it, and removes it.
func (r *Registry) end(s *Sandbox) bool {
	if !s.finish() {
		return false
	}
	if err := r.save(s.Record()); err != nil {
		r.opts.Log.Error("note the end of a sandbox", "sandbox", s.Alias(), "error", Quiet(err))
	}
	r.remove(s)
	return true
}

// remove removes a sandbox that nobody sees any more, in the background.
func (r *Registry) remove(s *Sandbox) {
	s.finish()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return // the next start does it
	}
	if r.opts.Ended != nil {
		r.tasks.Go(func() { r.opts.Ended(s) })
	}
	r.tasks.Go(func() {
		for r.ctx.Err() == nil {
			err := r.removeOnce(s)
			if err == nil {
				return
			}
			r.opts.Log.Warn("a sandbox can't be removed now; it is tried again", "sandbox", s.Alias(), "error", Quiet(err))
			select {
			case <-time.After(retryAfter):
			case <-r.ctx.Done():
			}
		}
	})
}

func (r *Registry) removeOnce(s *Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), removeTime)
	defer cancel()
	defer context.AfterFunc(r.ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	if err := s.leave(ctx); err != nil {
		r.opts.Log.Info("leave a sandbox that ends", "sandbox", s.Alias(), "error", Quiet(err))
	}
	if err := r.opts.Engine.Remove(ctx, s.id); err != nil {
		return err
	}
	if err := jsonfile.Remove(r.path(s.id)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s.id)
	return nil
}

func (r *Registry) path(id string) string { return filepath.Join(r.dir, id+recordExt) }

func (r *Registry) save(rec Record) error { return jsonfile.Write(r.path(rec.ID), rec) }

// Close leaves all sandboxes as they are, for the next [Open].
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.ready.Close()
	for _, s := range r.list() {
		s.stop()
	}
	r.tasks.Wait()
	var errs []error
	for _, s := range r.list() {
		errs = append(errs, s.leave(context.Background()))
	}
	return errors.Join(append(errs, r.held.Close())...)
}

// token is a secret of a sandbox, for a use. Nothing about the server's own secret can be
// learned from it.
func (r *Registry) token(id, use string) string {
	mac := hmac.New(sha256.New, r.secret)
	_, _ = mac.Write([]byte(use + ":" + id))
	return hex.EncodeToString(mac.Sum(nil))
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (r *Registry) newSandbox(rec Record) *Sandbox {
	return &Sandbox{r: r, id: rec.ID, owner: rec.Owner, change: lock.New(), rec: rec}
}
