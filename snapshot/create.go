package snapshot

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// CreateOptions describe a new snapshot; nil means all defaults.
type CreateOptions struct {
	Label string // one line, at most 200 characters
	// Call makes the snapshot a step: it is the state before the call of that id,
	// at most 80 characters.
	Call string
	// Auto marks a snapshot that nobody requested: like steps, it may be deleted when the store needs room.
	Auto bool
	// Spare is a snapshot to keep even if the store needs room; may be empty.
	Spare string
	// Quiesce pauses the workspace's programs meanwhile, if the host can.
	Quiesce bool
}

// Create takes a snapshot of the workspace. Programs may keep running: a file that changes each time it is read is
// listed as unstable. A process that is killed meanwhile leaves either the whole snapshot or none. At the limit of the
// store Create deletes the oldest steps and other automatic snapshots; if that isn't enough the error is no_space.
func (s *Store) Create(ctx context.Context, opts *CreateOptions) (Info, error) {
	if opts == nil {
		opts = &CreateOptions{}
	}
	if err := errors.Join(checkLine(opts.Label, maxLabel, "label"), checkLine(opts.Call, maxCall, "call")); err != nil {
		return Info{}, tool.AsError(err)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	if _, err := s.recover(ctx); err != nil {
		return Info{}, storeError(err)
	}
	r, err := s.fit(ctx, opts)
	if err != nil {
		return Info{}, storeError(errors.Join(err, s.objects.abandon()))
	}
	return r.Info, nil
}

// fit takes the snapshot, and makes room if necessary: first for twice the missing bytes, then as much as possible.
func (s *Store) fit(ctx context.Context, opts *CreateOptions) (*record, error) {
	limits := s.opts.Limits
	beside, err := s.beside()
	if err != nil {
		return nil, err
	}
	s.objects.room.beside = beside
	limits.Store -= beside
	if s.objects.taken > limits.Store/16*15 || len(s.objects.index) > limits.Objects/16*15 {
		if err := s.free(ctx, claim{limits.Store / 4 * 3, limits.Objects / 4 * 3, limits.Store, opts.Spare}); err != nil {
			return nil, err
		}
	}
	for try := range 3 {
		r, err := s.create(ctx, opts)
		if !errors.Is(err, errFull) {
			return r, err
		}
		bytes, objects := s.objects.pending()
		if err := s.objects.abandon(); err != nil {
			return nil, err
		}
		left, few := min(limits.Store/4*3, limits.Store-2*bytes), min(limits.Objects/4*3, limits.Objects-2*objects)
		if try > 0 {
			left, few = 0, 0
		}
		if err := s.free(ctx, claim{max(left, 0), max(few, 0), limits.Store - bytes, opts.Spare}); err != nil {
			return nil, err
		}
	}
	return nil, s.errNoRoom()
}

// beside returns the bytes of the store outside of its packs.
func (s *Store) beside() (int64, error) {
	u := Usage{}
	if err := u.add(s.opts.Store); err != nil {
		return 0, err
	}
	names, err := listNames(s.records)
	if err != nil {
		return 0, err
	}
	sizes := make(map[string]int64, len(names))
	for _, name := range names {
		size, known := s.sizes[name]
		if !known {
			info, err := s.records.Lstat(name)
			if err != nil {
				continue // removed since
			}
			size = info.Size()
		}
		sizes[name] = size
		u.Bytes += size
	}
	s.sizes = sizes
	return u.Bytes, nil
}

func (s *Store) free(ctx context.Context, c claim) error {
	b := s.budget(ctx)
	defer b.Close()
	return s.makeRoom(b, c)
}

func (s *Store) create(ctx context.Context, opts *CreateOptions) (*record, error) {
	b := s.budgetOf(ctx, s.opts.Limits.Memory/2)
	defer b.Close()
	root, unstable, apart, err := s.store(b, opts.Quiesce)
	if err != nil {
		return nil, err
	}
	r := &record{Format: recordFormat, Root: root.hash.String(), Mode: root.mode, Mtime: root.mtime, Names: true}
	r.ID, r.Label, r.Call, r.Auto, r.CreatedAt = newID(), opts.Label, opts.Call, opts.Auto, time.Now().UTC().Truncate(time.Millisecond)
	r.count(root, unstable, apart)
	if r.NewBytes, err = s.objects.flush(); err != nil {
		return nil, err
	}
	if err := s.writeRecord(r); err != nil {
		return nil, err
	}
	// The snapshot is complete without these: a lost cache costs time, an unmerged pack a descriptor.
	s.cache.keep(root)
	_ = s.cache.save(s.opts.Store)
	_ = s.merge()
	return r, nil
}

// store adds all new content to the packs and returns the workspace's tree. apart are as in joinNames.
func (s *Store) store(b *budget.Budget, quiesce bool) (root *entry, unstable, apart names, err error) {
	resume, _, err := s.quiesce(b.Context(), quiesce)
	if err != nil {
		return nil, unstable, apart, err
	}
	defer resume()
	if root, unstable, err = s.scan(b, s.objects.put, s.objects.has); err != nil {
		return nil, unstable, apart, err
	}
	if apart, err = joinNames(b, root); err != nil {
		return nil, unstable, apart, err
	}
	return root, unstable, apart, finish(b, root, s.objects.put)
}

func (s *Store) quiesce(ctx context.Context, wanted bool) (resume func(), still bool, err error) {
	if !wanted || s.opts.Quiesce == nil {
		return func() {}, false, nil
	}
	return s.opts.Quiesce(ctx)
}

// count sets the numbers of files and bytes in the tree.
func (r *record) count(root *entry, unstable, unkept names) {
	var skipped names
	walkTree(root.dir, nil, func(at *place, e *entry) {
		if e.kind == file {
			r.Files++
			r.Bytes += e.size
		}
		if e.unstable {
			unstable.add(at, e.name)
		}
		if e.kind == special {
			skipped.add(at, e.name)
		}
		if e.more != nil && e.more.unkept {
			unkept.add(at, e.name)
		}
	})
	r.Unstable, r.Skipped, r.Unkept = unstable.list, skipped.list, unkept.list
	slices.Sort(r.Unstable)
}

// names is a list of paths of bounded length and size, since records contain it.
type names struct {
	list []string
	size int
}

func (n *names) add(at *place, name string) {
	if len(n.list) == maxNamed || n.size > maxNamedSize {
		return
	}
	path := at.clipped(name)
	n.size += len(path)
	n.list = append(n.list, path)
}

// maxShown is the maximum number of characters of a path in results.
const maxShown = 4096

// clipPath keeps the paths of very deep trees short.
func clipPath(path string) string {
	if len(path) > maxShown {
		return path[:maxShown/2] + "..." + path[len(path)-maxShown/2:]
	}
	return path
}

// walkTree visits every entry, with the directory that it is in.
func walkTree(d *dir, at *place, do func(at *place, e *entry)) {
	for i := range d.entries {
		e := &d.entries[i]
		do(at, e)
		if e.dir != nil {
			walkTree(e.dir, &place{up: orTop(at), name: e.name}, do)
		}
	}
}

func orTop(at *place) *place {
	if at == nil {
		return &place{}
	}
	return at
}

// List describes the snapshots, the oldest first. It skips damaged records.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	infos, err := s.list()
	return infos, storeError(err)
}

func (s *Store) list() ([]Info, error) {
	ids, err := s.ids()
	infos := []Info{}
	for _, id := range ids {
		if r, err := s.readRecord(id, "snapshot_id"); err == nil {
			infos = append(infos, r.Info)
		}
	}
	return infos, err
}
