package snapshot

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// CreateOptions describe a new snapshot; nil is all defaults.
type CreateOptions struct {
	Label string // one line, at most 200 characters
	// Call makes the snapshot a step: it is the state before the call of that id,
	// at most 80 characters.
	Call string
	// Quiesce pauses the workspace's programs meanwhile, where the host can.
	Quiesce bool
}

// Create keeps the workspace as it is. Programs may go on: a file that changes
// each time it is read is listed as unstable. A process that is killed meanwhile
// leaves either the whole snapshot or none.
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
	r, err := s.create(ctx, opts)
	if err != nil {
		return Info{}, storeError(errors.Join(err, s.objects.abandon()))
	}
	return r.Info, nil
}

func (s *Store) create(ctx context.Context, opts *CreateOptions) (*record, error) {
	root, unstable, err := s.store(ctx, opts.Quiesce)
	if err != nil {
		return nil, err
	}
	r := &record{Format: recordFormat, Root: root.hash.String(), Mode: root.mode, Mtime: root.mtime}
	r.ID, r.Label, r.Call, r.CreatedAt = newID(), opts.Label, opts.Call, time.Now().UTC().Truncate(time.Millisecond)
	r.count(root, unstable)
	if r.NewBytes, err = s.objects.flush(); err != nil {
		return nil, err
	}
	if err := s.writeRecord(r); err != nil {
		return nil, err
	}
	// Neither is needed for the snapshot to be whole: a lost cache costs time, an
	// unmerged pack a descriptor.
	s.cache.keep(root)
	_ = s.cache.save(s.opts.Store)
	_ = s.merge()
	return r, nil
}

// store takes all that is new into the packs and gives the workspace's tree.
func (s *Store) store(ctx context.Context, quiesce bool) (*entry, []string, error) {
	resume, _, err := s.quiesce(ctx, quiesce)
	if err != nil {
		return nil, nil, err
	}
	defer resume()
	root, unstable, err := s.scan(ctx, s.objects.put, s.objects.has)
	if err != nil {
		return nil, nil, err
	}
	return root, unstable, finish(root, s.objects.put)
}

func (s *Store) quiesce(ctx context.Context, wanted bool) (resume func(), still bool, err error) {
	if !wanted || s.opts.Quiesce == nil {
		return func() {}, false, nil
	}
	return s.opts.Quiesce(ctx)
}

// count fills in what the tree holds.
func (r *record) count(root *entry, unstable []string) {
	for _, path := range unstable {
		name(&r.Unstable, path)
	}
	walkTree(root.dir, nil, func(path func() string, e *entry) {
		if e.kind == file {
			r.Files++
			r.Bytes += e.size
		}
		if e.unstable {
			name(&r.Unstable, path())
		}
		if e.kind == special {
			name(&r.Skipped, path())
		}
	})
	slices.Sort(r.Unstable)
}

// name adds a path to a list of bounded length.
func name(list *[]string, path string) {
	if len(*list) < maxNamed {
		*list = append(*list, clipPath(shown(path)))
	}
}

// clipPath keeps the paths of very deep trees short.
func clipPath(path string) string {
	const most = 4096
	if len(path) > most {
		return path[:most/2] + "..." + path[len(path)-most/2:]
	}
	return path
}

// walkTree visits every entry; path is made only when it is asked for.
func walkTree(d *dir, at *place, do func(path func() string, e *entry)) {
	for i := range d.entries {
		e := &d.entries[i]
		do(func() string { return at.path(e.name) }, e)
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

// List describes the snapshots, the oldest first. One whose record is damaged is
// left out.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ids, err := s.ids()
	if err != nil {
		return nil, storeError(err)
	}
	infos := []Info{}
	for _, id := range ids {
		if r, err := s.readRecord(id, "snapshot_id"); err == nil {
			infos = append(infos, r.Info)
		}
	}
	return infos, nil
}
