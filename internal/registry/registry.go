// Package registry records the sandboxes of a server, with their owners, deadlines and states.
// It ends them at their deadlines and recovers them after a restart. The [Engine] creates the
// sandboxes, and the [Front] serves their clients.
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
	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/pool"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/tool"
)

// Engine creates and runs sandboxes. Its methods may be called concurrently.
type Engine interface {
	// Create creates a running sandbox. After an error nothing is left of it.
	Create(ctx context.Context, r Record) (Box, error)
	// Open opens an existing sandbox. The error is not_found if and only if it is gone.
	Open(ctx context.Context, id string) (Box, error)
	// Remove ends a sandbox with its programs and files. A missing sandbox is not an error.
	Remove(ctx context.Context, id string) error
	// IDs returns the IDs of all existing sandboxes, including those not created by this registry.
	IDs(ctx context.Context) ([]string, error)
}

// Box is a sandbox of an [Engine]. Its methods may be called concurrently.
type Box interface {
	// Dial connects to a port of 127.0.0.1 in the sandbox. If nothing listens there, the error
	// is not_found.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	// Close releases the handle; the sandbox keeps running.
	Close(ctx context.Context) error
}

// Pauser is a [Box] whose programs can be suspended in memory and resumed.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Restarter is a [Box] that can restart from its files alone.
type Restarter interface {
	// Halt ends the programs, even in a paused box. The files stay.
	Halt(ctx context.Context) error
	// Restart starts the box again, without the programs of a paused box.
	Restart(ctx context.Context, env map[string]string) error
}

// Forker is a [Box] that can be forked with its files.
type Forker interface {
	// Fork creates a running box with the ID and the network rules of r.
	Fork(ctx context.Context, r Record) (Box, error)
}

// Gauger is a [Box] that reports its current resource usage.
type Gauger interface {
	Gauge(ctx context.Context) (Gauge, error)
}

// Networker is a [Box] whose network rules can be replaced while it runs.
type Networker interface {
	SetNetwork(ctx context.Context, allow, deny []string) error
	// Network returns the rules in force.
	Network(ctx context.Context) (allow, deny []string, err error)
}

// Front answers the requests for one sandbox, from a start or resume to the next pause or the
// end.
type Front interface {
	// ServePort answers a request for a port of the sandbox.
	ServePort(w http.ResponseWriter, r *http.Request, port uint16)
	// Close frees the resources of the front. It is called after the last request.
	Close()
}

// Options of [Open]. Engine, Front, and either Dir or Book are required.
type Options struct {
	Engine Engine
	// Dir is a directory used by this registry only. It is created if missing.
	Dir string
	// Book keeps the records instead of Dir, for several servers. They share the Secret, from
	// which the tokens of all sandboxes are derived: at least 32 bytes. With a Book there is no
	// Ready pool, no sampling and no pause.
	Book   Book
	Secret []byte
	// MaxLife bounds the life of a sandbox after its start, including extensions; 0 means no
	// limit.
	MaxLife time.Duration
	// Front creates the front of a sandbox. done is closed when the sandbox ends or is paused.
	Front func(s *Sandbox, box Box, done <-chan struct{}) Front
	// Size is the size of a sandbox whose record has none, as in older versions.
	Size Quota
	// Beside is the limit of the host's own files for such a sandbox.
	Beside int64
	// Disk bounds the total disk usage of the sandboxes and snapshots of all owners, in bytes; 0
	// means no limit. Sandboxes count until they are removed.
	Disk int64
	// Kept returns the disk usage of the snapshots of all owners. It is required with Disk.
	Kept func() (int64, error)
	// Ended is called after a sandbox has ended for its clients. Default none.
	Ended func(*Sandbox)
	// Ready configures the pool of sandboxes of Size made in advance. Default none.
	Ready Ready
	// SampleEvery is the sampling interval. Default 5 s.
	SampleEvery time.Duration
	// Log logs details that clients don't see. Default none.
	Log *slog.Logger
}

// Registry holds the sandboxes. Its methods may be called concurrently.
type Registry struct {
	opts   Options
	dir    string // of the records
	secret []byte
	held   *flock.Flock
	ctx    context.Context // done after Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  *pool.Pool[*Sandbox] // nil without a pool

	mu     sync.Mutex
	closed bool
	all    map[string]*Sandbox
	order  int64                    // the number of updates from the book so far
	asks   map[string]*rate.Limiter // by caller: limits lookups of IDs that aren't known here

	change   *lock.Mutex         // held to claim, reserve or release, so that sandboxes being made always count
	accounts map[string]*account // by owner
}

const (
	retryAfter  = 30 * time.Second // after a failed removal or pause
	lookAfter   = time.Minute      // interval of checks for missing sandboxes
	secretBytes = 32
)

var (
	removeTime = patience.For(2 * time.Minute) // per try
	stopGrace  = patience.For(5 * time.Second) // for removals when the server stops; the next start does the rest
)

// ErrInUse is the error for a directory that another registry has open.
var ErrInUse = errors.New("another server uses this directory")

// Open reads the records of Dir. Sandboxes whose deadline has passed end now.
func Open(ctx context.Context, opts *Options) (_ *Registry, err error) {
	r := &Registry{
		opts: *opts, dir: filepath.Join(opts.Dir, "sandboxes"), all: map[string]*Sandbox{}, change: lock.New(), accounts: map[string]*account{},
		asks: map[string]*rate.Limiter{},
	}
	if r.opts.Log == nil {
		r.opts.Log = slog.New(slog.DiscardHandler)
	}
	if r.opts.SampleEvery <= 0 {
		r.opts.SampleEvery = sampleEvery
	}
	if r.shared() {
		if err := r.openShared(ctx); err != nil {
			return nil, err
		}
		return r, nil
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

// openShared receives the sandboxes of the book.
func (r *Registry) openShared(ctx context.Context) error {
	if r.secret = r.opts.Secret; len(r.secret) < secretBytes {
		return tool.Errorf(tool.Invalid, "the servers' common secret has %d bytes; it must have at least %d", len(r.secret), secretBytes).In("secret")
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := r.follow(ctx); err != nil {
		return errors.Join(err, r.Close())
	}
	r.tasks.Go(r.keepLooking)
	return nil
}

// secretOf returns the secret that tokens are derived from. It is persistent, so tokens stay
// valid after a restart.
func secretOf(path string) (secret []byte, err error) {
	err = jsonfile.Read(path, &secret)
	if errors.Is(err, fs.ErrNotExist) {
		secret = make([]byte, secretBytes)
		_, _ = rand.Read(secret) // can't fail
		err = jsonfile.Write(path, secret)
	}
	if err == nil && len(secret) < secretBytes {
		err = errors.New("the server's secret is cut short; remove its file, which changes all tokens")
	}
	return secret, err
}

// Records returns the records in a server's directory, which another process may be serving. It
// skips records that it can't read.
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
		s.spare = rec.State == creating && rec.Owner == "" // as before: it doesn't count while it is removed
		r.all[rec.ID] = s
	}
	r.look(ctx)
	for _, s := range r.list() {
		if s.Record().State == creating || s.Record().State == ending {
			r.remove(s)
			continue
		}
		if s.Record().Halting {
			r.tasks.Go(s.emptyAgain)
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

// keepLooking periodically forgets sandboxes that were removed by others.
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
	if r.shared() {
		r.sweepStale()
		return
	}
	before := r.All() // first: sandboxes created meanwhile may not be among the IDs
	ids, err := r.opts.Engine.IDs(ctx)
	if err != nil {
		r.opts.Log.Warn("list the sandboxes", "error", Quiet(err))
		return
	}
	for _, s := range before {
		if !slices.Contains(ids, s.id) {
			r.opts.Log.Info("a sandbox is gone that this server did not end", "sandbox", s.Alias())
			r.Kill(s)
		}
	}
}

// Find returns a running or paused sandbox of any owner. It doesn't return named sandboxes.
func (r *Registry) Find(id string) (*Sandbox, bool) {
	r.mu.Lock()
	s := r.all[id]
	r.mu.Unlock()
	return s, s != nil && s.visible() && !s.isNamed()
}

// Owned returns an owner's unnamed sandboxes, newest first.
func (r *Registry) Owned(owner string) []*Sandbox {
	return r.those(func(s *Sandbox) bool { return s.owner == owner && !s.isNamed() })
}

// All returns the sandboxes of all owners, named and unnamed.
func (r *Registry) All() []*Sandbox { return r.those(func(*Sandbox) bool { return true }) }

// those filters before it copies and sorts, since all owners' sandboxes may be many.
func (r *Registry) those(which func(*Sandbox) bool) (all []*Sandbox) {
	r.mu.Lock()
	for _, s := range r.all {
		if which(s) && s.visible() {
			all = append(all, s)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *Sandbox) int {
		return cmp.Or(b.started().Compare(a.started()), strings.Compare(b.id, a.id))
	})
	return all
}

// Kill ends a sandbox: it hides it from clients and cuts off its requests. The rest is removed in
// the background. Kill reports whether the sandbox existed.
func (r *Registry) Kill(s *Sandbox) bool {
	if !s.finish() {
		return false
	}
	if err := r.save(s.Record()); err != nil {
		r.opts.Log.Error("note the end of a sandbox", "sandbox", s.Alias(), "error", Quiet(err))
	}
	r.remove(s)
	return true
}

// remove removes a hidden sandbox in the background.
func (r *Registry) remove(s *Sandbox) {
	s.finish()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return // the next start removes it
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
	if r.shared() {
		return r.removeShared(ctx, s)
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

// removeShared removes a sandbox. The registry forgets it when the book reports its end, or now
// if the book never reported it.
func (r *Registry) removeShared(ctx context.Context, s *Sandbox) error {
	if _, _, err := r.opts.Book.End(ctx, s.id, nil); err != nil {
		return err
	}
	if !s.wasHeard() {
		r.gone(s)
	}
	return nil
}

func (r *Registry) path(id string) string { return filepath.Join(r.dir, id+recordExt) }

// save writes a record to the directory. With a book, the record is kept with the sandbox.
func (r *Registry) save(rec Record) error {
	if r.shared() {
		return nil
	}
	return jsonfile.Write(r.path(rec.ID), rec)
}

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
	if r.held != nil {
		errs = append(errs, r.held.Close())
	}
	return errors.Join(errs...)
}

// token returns the token of a sandbox for one use. It reveals nothing about the server's own
// secret.
func (r *Registry) token(id, use string) string {
	mac := hmac.New(sha256.New, r.secret)
	_, _ = mac.Write([]byte(use + ":" + id))
	return hex.EncodeToString(mac.Sum(nil))
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (r *Registry) newSandbox(rec Record) *Sandbox {
	return &Sandbox{r: r, id: rec.ID, owner: rec.Owner, change: lock.New(), rec: rec, known: make(chan struct{})}
}
