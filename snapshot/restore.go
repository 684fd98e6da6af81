package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

// RestoreOptions are options of [Store.Restore]; nil means all defaults.
type RestoreOptions struct {
	// Quiesce pauses the workspace's programs meanwhile, if the host can.
	Quiesce bool
}

// Restored is the result of a restore.
type Restored struct {
	ID      string `json:"snapshot_id"`
	Added   int64  `json:"added"`   // entries that were missing
	Changed int64  `json:"changed"` // entries whose content, kind or mode differed
	Removed int64  `json:"removed"` // entries that were not in the snapshot; a directory counts as one
	// Conflicts are paths that a program changed during the call. Skipped are FIFOs, sockets
	// and devices of the snapshot that are missing now. Each has at most 1,000 paths, made
	// printable.
	Conflicts []string `json:"conflicts,omitempty"`
	Skipped   []string `json:"skipped,omitempty"`

	changes []tool.Change
}

// Changes returns the first 1,000 paths that the restore has changed.
func (r Restored) Changes() []tool.Change { return r.changes }

// rounds is the number of rounds of a restore while programs keep writing.
const rounds = 3

// Restore restores the workspace in place, by renames, and changes only what differs. It reads,
// checks and stages all content before the first change: up to then, a damaged or missing object
// or the end of ctx changes nothing. If the disk is too full for that, it first removes entries
// that aren't in the snapshot. After the first change it runs to its end; if the process is killed,
// the next call or [Store.Recover] finishes it.
func (s *Store) Restore(ctx context.Context, id string, opts *RestoreOptions) (Restored, error) {
	return s.restoreFrom(ctx, id, opts, nil)
}

func (s *Store) restoreFrom(ctx context.Context, id string, opts *RestoreOptions, from *twin) (Restored, error) {
	if opts == nil {
		opts = &RestoreOptions{}
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return Restored{}, err
	}
	defer unlock()
	r, err := s.readNamed(id, "snapshot_id")
	if err != nil {
		return Restored{}, err
	}
	resume, still, err := s.quiesce(ctx, opts.Quiesce)
	if err != nil {
		return Restored{}, tool.AsError(err)
	}
	defer resume()
	still = still || from != nil // no program has a clone yet
	return s.restore(ctx, &restore{twin: from, still: still}, r)
}

// Recover finishes a restore that was interrupted by the end of its process, and reports whether
// there was one. Call it when a session is opened, before its programs start.
func (s *Store) Recover(ctx context.Context) (done bool, err error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	done, err = s.recover(ctx)
	return done, storeError(err)
}

const intentName = "restoring.json"

// intent is the record on disk of a restore that has begun to change the workspace.
type intent struct {
	ID string `json:"snapshot_id"`
}

func (s *Store) recover(ctx context.Context) (bool, error) {
	b, err := readSmall(s.opts.Store, intentName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var in intent
	if err != nil || json.Unmarshal(b, &in) != nil {
		return false, errors.Join(err, s.opts.Store.Remove(intentName))
	}
	r, err := s.readRecord(in.ID, "snapshot_id")
	if err == nil {
		_, err = s.restore(ctx, &restore{}, r)
	}
	if k := tool.KindOf(err); k == tool.Unavailable || k == tool.NotFound || k == tool.Invalid {
		// It will never succeed: the workspace stays as it is.
		err = errors.Join(err, s.opts.Store.Remove(intentName))
	}
	return true, err
}

func (s *Store) restore(ctx context.Context, w *restore, r *record) (Restored, error) {
	if s.opts.Lock != nil {
		if err := s.staging.Sweep(); err != nil {
			return Restored{}, beneath.Error(err, "the workspace")
		}
	}
	b := s.budget(ctx)
	defer b.Close()
	want, err := s.load(b, r)
	if err != nil {
		return Restored{}, restoreError(err, r.ID)
	}
	w.groups, w.parts = groupsOf(want), r.Names
	w.store, w.want, w.placed, w.out, w.budget = s, want, newPlaced(), Restored{ID: r.ID}, b
	w.large = r.Files >= largeTree
	w.trash = newTrash(s.staging)
	err = w.run(ctx)
	w.trash.settle() // of an error
	if err != nil && w.cleared {
		err = errors.Join(s.opts.Store.Remove(intentName), errCleared(err, r.ID))
	}
	w.out.Conflicts, w.out.Skipped = w.conflicts.list, w.skipped.list
	return w.out, restoreError(err, r.ID)
}

// errCleared returns the error for a disk on which the freed room is not enough.
func errCleared(err error, id string) error {
	e := tool.AsError(storeError(err))
	return tool.Errorf(e.Kind, "files that aren't in snapshot %s were removed to make room, which is not enough for the rest: %s", id, e.Message).Because(err)
}

func restoreError(err error, id string) error {
	if d := (*damage)(nil); errors.As(err, &d) {
		return d.report("snapshot " + id)
	}
	if err == nil {
		return nil
	}
	return beneath.Error(err, "the workspace")
}

// restore is one restore at work.
type restore struct {
	store  *Store
	budget *budget.Budget
	want   *entry
	groups map[*entry]*group // of want: files with several names
	parts  bool              // want says which files have several names
	linked []linked          // found by the last plan
	twin   *twin             // may be nil
	still  bool              // nothing else writes: one round is exact
	large  bool              // a scan costs more than the wait until a program's time is counted
	placed *placed
	trash  *trash
	seen   *entry // the workspace at the last scan
	held   int    // of the budget's memory, for seen
	out    Restored
	began  bool // the workspace may differ from what it was
	again  bool // not the first round
	blind  bool // the workspace can't be scanned
	// cleared reports whether unwanted entries were removed to make room.
	cleared bool

	conflicts, skipped names
}

func (r *restore) run(ctx context.Context) error {
	for range rounds {
		idle := r.watch(ctx)
		same, err := r.round()
		if err != nil {
			return err
		}
		if same || r.still || idle() {
			return r.end()
		}
		ctx = context.WithoutCancel(ctx)
		r.renew(ctx)
	}
	// Files that still differ are those that programs keep writing.
	have, err := r.look()
	if err != nil {
		return err
	}
	r.again = true
	if _, err := r.plan(have); err != nil {
		return err
	}
	return r.end()
}

const (
	// countedAfter is the time until the kernel has counted a program's processor time: the
	// longest tick of its clock (CONFIG_HZ=100).
	countedAfter = 10 * time.Millisecond
	// largeTree is the number of files scanned in about that time (4 µs each, on two
	// processors).
	largeTree = 4_000
)

// watch begins a round. At its end, idle reports whether no program has run since, so that none
// can have written.
func (r *restore) watch(ctx context.Context) (idle func() bool) {
	no := func() bool { return false }
	if r.still || !r.large || r.store.opts.Activity == nil {
		return no
	}
	before, err := r.store.opts.Activity(ctx)
	if err != nil {
		return no
	}
	return func() bool {
		counted := time.After(countedAfter)
		r.trash.settle() // takes about as long
		<-counted
		after, err := r.store.opts.Activity(context.WithoutCancel(ctx))
		return err == nil && after == before
	}
}

// look scans the workspace to compare it with the wanted tree. It doesn't read entries that can't
// match, that the restore has placed itself, or that have not changed since its last scan.
// Directories have no hashes.
func (r *restore) look() (*entry, error) {
	s := r.store
	if int64(r.held) > s.opts.Limits.Memory/4 { // there is no room for three trees
		r.forget()
	}
	w := &scan{
		top: int(s.top.Fd()), dev: s.dev, cache: s.cache, known: func(Hash) bool { return true }, put: justHash,
		budget: r.budget, limits: s.opts.Limits, lenient: true, want: r.want, groups: r.groups, placed: r.placed, old: r.seen,
	}
	have, err := w.run()
	r.forget()
	r.seen, r.held = have, int(w.held.Load())
	return have, err
}

// forget frees the last scan.
func (r *restore) forget() {
	r.budget.Release(r.held)
	r.seen, r.held = nil, 0
}

// renew begins a new budget, since a restore that has begun runs to its end.
func (r *restore) renew(ctx context.Context) {
	r.budget, r.held, r.linked = r.store.budget(ctx), 0, nil
}

// round restores the entries that differ, and reports whether there were none.
func (r *restore) round() (same bool, err error) {
	have, err := r.look()
	if tool.KindOf(err) == tool.Limit && !r.blind {
		have, err = r.lookBlindly()
	}
	if err != nil {
		return false, err
	}
	plan, err := r.plan(have)
	if err != nil || plan.empty() && !r.blind {
		return true, err
	}
	st := newStage(r.store, r)
	defer st.discard()
	if err := st.fill(plan); err != nil {
		if r.cleared || plan.removes == 0 || tool.KindOf(storeError(err)) != tool.NoSpace {
			return false, err
		}
		st.discard()
		if err := r.clear(have); err != nil {
			return false, err
		}
		return r.round()
	}
	if err := r.begin(); err != nil {
		return false, err
	}
	a := &apply{store: r.store, stage: st}
	if err := a.run(have, r.want); err != nil {
		return false, err
	}
	if r.blind {
		if err := r.clearTop(st); err != nil {
			return false, err
		}
	}
	r.again = true
	return false, nil
}

// lookBlindly is for a workspace that is too large to scan: it stages the whole snapshot and
// removes everything else.
func (r *restore) lookBlindly() (*entry, error) {
	r.blind = true
	r.renew(r.budget.Context()) // the memory of the failed scan is free
	top := int(r.store.top.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(top, &st); err != nil {
		return nil, err
	}
	have := &entry{dir: &dir{entries: make([]entry, 0, len(r.want.dir.entries))}}
	have.take(&st)
	for i := range r.want.dir.entries {
		have.dir.entries = append(have.dir.entries, entry{name: r.want.dir.entries[i].name, kind: special})
	}
	return have, nil
}

const clearBatch = 1_000 // names

// clearTop removes unwanted entries from the workspace's top directory.
func (r *restore) clearTop(st *stage) error {
	top := int(r.store.top.Fd())
	fd, err := openForChange(newPlace(top))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	a := &apply{store: r.store, stage: st}
	for {
		var more []string
		if _, err := unix.Seek(fd, 0, 0); err != nil {
			return err
		}
		err := beneath.ReadDir(fd, func(e beneath.Entry) bool {
			if r.want.child(e.Name) == nil {
				more = append(more, strings.Clone(e.Name))
			}
			return len(more) < clearBatch
		})
		if err != nil || len(more) == 0 {
			return errors.Join(err, finishDir(fd, r.want))
		}
		for _, name := range more {
			r.out.Removed++
			if err := errors.Join(r.budget.Step(1), a.remove(fd, &entry{name: name})); err != nil {
				return err
			}
		}
	}
}

// clear makes room for staging: it removes unwanted entries first. An error after that leaves the
// workspace without them.
func (r *restore) clear(have *entry) error {
	if err := r.begin(); err != nil {
		return err
	}
	r.cleared = true
	st := newStage(r.store, r)
	if err := (&apply{store: r.store, stage: st, removing: true}).run(have, r.want); err != nil {
		return err
	}
	if r.blind {
		if err := r.clearTop(st); err != nil {
			return err
		}
	}
	st.discard()
	r.trash.wait()
	r.out.Added, r.out.Changed, r.out.changes = 0, 0, slices.DeleteFunc(r.out.changes, func(c tool.Change) bool { return !c.Removed })
	return nil
}

func (r *restore) begin() error {
	if r.began {
		return nil
	}
	b, err := json.Marshal(intent{ID: r.out.ID})
	if err != nil {
		return err
	}
	if err := replaceFile(r.store.opts.Store, intentName, b, r.store.opts.Fsync); err != nil {
		return storeError(err)
	}
	r.began = true
	return nil
}

func (r *restore) end() error {
	slices.Sort(r.conflicts.list)
	r.conflicts.list = slices.Compact(r.conflicts.list)
	if !r.began {
		return nil
	}
	r.trash.settle()
	if s := r.store; s.opts.Fsync {
		if err := sys.SyncFS(int(s.top.Fd())); err != nil {
			return storeError(err)
		}
	}
	return storeError(ignoreMissing(r.store.opts.Store.Remove(intentName)))
}

// plan holds the differences between the workspace and the snapshot.
type plan struct {
	files   []wanted
	trees   []wanted // missing directories
	differs bool
	removes int   // entries
	frees   int64 // bytes of the files that are removed or replaced
}

// wanted is an entry to stage.
type wanted struct {
	at    *place // its directory in the workspace
	entry *entry
}

// named adds the path to an error about damage. It makes the path only then, since there are
// thousands.
func (w wanted) named(err error) error {
	if err == nil {
		return nil
	}
	return at(err, w.at.clipped(w.entry.name))
}

func (p *plan) empty() bool { return !p.differs }

func (r *restore) plan(have *entry) (*plan, error) {
	p := &plan{differs: have.mode != r.want.mode || have.mtime != r.want.mtime}
	r.budget.Release(len(r.linked) * linkedMemory)
	r.linked = nil
	if _, err := r.compare(p, newPlace(int(r.store.top.Fd())), have.dir, r.want.dir); err != nil {
		return p, err
	}
	r.planNames(p)
	return p, nil
}

// compare plans the changes below a directory and reports whether there are none. A missing
// directory counts entry by entry, an unwanted one counts once. A directory without differences
// gets the hash of the wanted one.
func (r *restore) compare(p *plan, at *place, have, want *dir) (same bool, err error) {
	have.prune()
	same = true
	visit := pairs
	if have != nil && have.same {
		visit = pairFolders
	}
	err = visit(have, want, func(a, b *entry) error {
		if r.differs(p, at, a, b) {
			same = false
		}
		if b != nil && b.kind == file && (r.groups[b] != nil || a != nil && a.kind == file && a.links > 1) {
			same = false // its names decide
			if err := r.budget.Hold(linkedMemory); err != nil {
				return tooLarge(err, "workspace")
			}
			r.linked = append(r.linked, linked{at, a, b})
		}
		switch {
		case b == nil:
			p.frees += a.size
			p.removes++
			return nil
		case b.kind == file && needsStaging(a, b):
			p.files = append(p.files, wanted{at: at, entry: b})
			if a != nil {
				p.frees += a.size
			}
		case b.kind == folder && (a == nil || a.kind != folder):
			p.trees = append(p.trees, wanted{at: at, entry: b})
			_, err := r.compare(&plan{}, at.child(b.name), nil, b.dir) // it is only counted
			return err
		case b.kind == folder:
			below, err := r.compare(p, at.child(b.name), inside(a), b.dir)
			if err != nil {
				return err
			}
			if below && a != nil {
				a.hash = b.hash
			}
			same = same && below
		}
		return nil
	})
	return same, err
}

// pairFolders is like pairs, for the directories in two directories with the same names.
func pairFolders(a, b *dir, visit func(a, b *entry) error) error {
	for i := range a.entries {
		if a.entries[i].kind != folder {
			continue
		}
		if err := visit(&a.entries[i], &b.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// differs plans the change of an entry that differs from the wanted one.
func (r *restore) differs(p *plan, at *place, a, b *entry) bool {
	switch {
	case missing(b) && (a == nil || a.kind == special && b != nil):
		if b != nil && a == nil && !r.again {
			r.skipped.add(at, b.name)
		}
		return false
	case missing(b):
		r.note(p, at, a, &r.out.Removed)
	case a == nil:
		r.note(p, at, b, &r.out.Added)
	case !sameContent(a, b) || !sameMode(a, b):
		r.note(p, at, b, &r.out.Changed)
	case a.mtime != b.mtime:
		p.differs = true
	default:
		return false
	}
	return true
}

// needsStaging reports whether a change needs a new file. Otherwise the mode and time of the
// existing file can be set, which would also change other names of the same file.
func needsStaging(a, b *entry) bool {
	return a == nil || !sameContent(a, b) || a.attrs() != b.attrs() || a.links > 1 && (a.mode != b.mode || a.mtime != b.mtime)
}

func (r *restore) note(p *plan, at *place, e *entry, count *int64) {
	p.differs = true
	if r.again {
		r.conflicts.add(at, e.name)
		return
	}
	*count++
	if len(r.out.changes) < maxNamed {
		r.out.changes = append(r.out.changes, tool.Change{Path: at.clipped(e.name), Removed: count == &r.out.Removed})
	}
}
