package snapshot

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
)

// Tree is the tree of one snapshot. The caller of [Store.Tree] closes it.
type Tree struct {
	store  *Store
	budget *budget.Budget
	top    *entry
}

// Tree reads the tree of a snapshot.
func (s *Store) Tree(ctx context.Context, id string) (*Tree, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t := &Tree{store: s, budget: s.budget(ctx)}
	if t.top, err = s.state(t.budget, id, "snapshot_id"); err != nil {
		t.Close()
		return nil, storeError(err)
	}
	return t, nil
}

// Close frees the memory of the tree.
func (t *Tree) Close() { t.budget.Close() }

// Find returns the file or link of a path, nil for anything else; there reports whether the snapshot
// has an entry of that path.
func (t *Tree) Find(path string) (e *Entry, there bool) {
	found := t.top.find(path)
	return carried(found), found != nil
}

func (e *entry) find(path string) *entry {
	for name := range strings.SplitSeq(path, "/") {
		e = e.child(name)
	}
	return e
}

// Open returns the content of a file of the tree, as [Between.Open] does.
func (t *Tree) Open(ctx context.Context, e *Entry) (io.ReadCloser, error) {
	return t.store.content(ctx, t.budget, e)
}

// Graft makes an automatic snapshot from two others: the tree of base, with the files and links of
// the paths as in from, where they may be missing. An empty base means an empty tree.
func (s *Store) Graft(ctx context.Context, base, from string, paths []string, label string) (Info, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	r, err := s.graft(ctx, base, from, paths)
	if err == nil {
		r.Label, r.Auto = label, true
		err = s.writeRecord(r)
	}
	if err != nil {
		return Info{}, storeError(errors.Join(err, s.objects.abandon()))
	}
	return r.Info, nil
}

func (s *Store) graft(ctx context.Context, base, from string, paths []string) (*record, error) {
	b := s.budget(ctx)
	defer b.Close()
	source, err := s.state(b, from, "from")
	if err != nil {
		return nil, err
	}
	top := &entry{kind: folder, mode: source.mode, mtime: source.mtime, dir: &dir{}}
	if base != "" {
		if top, err = s.state(b, base, "base"); err != nil {
			return nil, err
		}
	}
	for _, path := range paths {
		if err := errors.Join(b.Hold(entryMemory+len(path)), b.Step(1)); err != nil {
			return nil, tooLarge(err, "snapshot")
		}
		top.graft(source, path)
	}
	if err := finish(b, top, s.objects.put); err != nil {
		return nil, err
	}
	r := &record{Format: recordFormat, Root: top.hash.String(), Mode: top.mode, Mtime: top.mtime, Names: true}
	r.ID, r.CreatedAt = newID(), time.Now().UTC().Truncate(time.Millisecond)
	r.count(top, names{}, names{})
	r.NewBytes, err = s.objects.flush()
	return r, err
}

// graft sets one path of a tree to the file or link of another one, or removes it.
func (e *entry) graft(source *entry, path string) {
	at, from := e, source
	names := strings.Split(path, "/")
	wanted := source.find(path)
	if carried(wanted) == nil {
		wanted = nil
	}
	for _, name := range names[:len(names)-1] {
		from = from.child(name)
		next := at.child(name)
		if next == nil || next.kind != folder {
			if wanted == nil {
				return
			}
			next = at.put(entry{name: name, kind: folder, mode: from.mode, mtime: from.mtime, dir: &dir{}})
		}
		at = next
	}
	name := names[len(names)-1]
	switch old := at.child(name); {
	case wanted != nil:
		one := *wanted
		one.more = one.more.plain()
		at.put(one)
	case old != nil && old.kind != folder:
		at.dir.entries = slices.DeleteFunc(at.dir.entries, func(c entry) bool { return c.name == name })
	}
}

// put adds an entry to a directory in memory, or replaces the one of its name.
func (e *entry) put(c entry) *entry {
	i, found := slices.BinarySearchFunc(e.dir.entries, c.name, func(c entry, name string) int { return strings.Compare(c.name, name) })
	if found {
		e.dir.entries[i] = c
	} else {
		e.dir.entries = slices.Insert(e.dir.entries, i, c)
	}
	return &e.dir.entries[i]
}
