package snapshot

import (
	"context"
	"io"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Entry is a regular file or a link of a snapshot.
type Entry struct {
	Link   bool
	Exec   bool   // the owner may execute the file
	Size   int64  // of the file's content, or of the link's text
	Target string // the link's text

	entry *entry
}

// Same reports whether two entries have the same content; modes don't count.
func (e *Entry) Same(f *Entry) bool { return e.Link == f.Link && sameContent(e.entry, f.entry) }

// ContentID returns an ID that two files share only if they have the same content. It is "" for
// a link and for an empty file.
func (e *Entry) ContentID() string {
	if e.Link || e.Size == 0 {
		return ""
	}
	return e.entry.hash.String()
}

// Pair is a path with different files or links in two snapshots.
type Pair struct {
	Path     string // its bytes, unchanged
	Old, New *Entry // nil if the snapshot has no file or link there
}

// Between holds the differences between two snapshots. The caller closes it.
type Between struct {
	Pairs []Pair // sorted by path, directory by directory
	// GoneDirs are the directories that the second snapshot doesn't have, parents
	// first.
	GoneDirs []string
	// Old is the tree of the first snapshot, valid until Close.
	Old *Tree

	store  *Store
	budget *budget.Budget
}

const pairMemory = 2*entryMemory + 64

// Between compares two snapshots, for callers that apply the difference elsewhere. It compares
// files, links and whether a file is executable, but not other mode bits, times and empty
// directories. An empty ID for the first one means an empty tree. The limits on memory and time
// are those of one call of the Store.
func (s *Store) Between(ctx context.Context, from, to string) (*Between, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	d := &Between{store: s, budget: s.budget(ctx)}
	if err := d.read(from, to); err != nil {
		d.Close()
		return nil, storeError(err)
	}
	return d, nil
}

// Close frees the memory of the comparison.
func (d *Between) Close() { d.budget.Close() }

func (d *Between) read(from, to string) error {
	old := &entry{kind: folder, dir: &dir{}}
	if from != "" {
		var err error
		if old, err = d.store.state(d.budget, from, "from"); err != nil {
			return err
		}
	}
	d.Old = &Tree{store: d.store, budget: d.budget, top: old}
	now, err := d.store.stored(d.budget, to)
	if err != nil || old.hash == now.hash {
		return err
	}
	return d.compare(&place{}, old.dir, now.dir)
}

func (s *Store) stored(b *budget.Budget, id string) (*entry, error) {
	r, err := s.readNamed(id, "to")
	if err != nil {
		return nil, err
	}
	return s.load(b, r)
}

func (d *Between) compare(at *place, old, now *dir) error {
	return pairs(old, now, func(a, b *entry) error {
		if a != nil && b != nil && sameTree(a, b) {
			return d.budget.Step(1)
		}
		if err := d.add(at, a, b); err != nil {
			return err
		}
		inOld, inNow := inside(a), inside(b)
		if inOld == nil && inNow == nil {
			return nil
		}
		return d.compare(at.child(either(a, b).name), inOld, inNow)
	})
}

func (d *Between) add(at *place, a, b *entry) error {
	p := Pair{Old: carried(a), New: carried(b)}
	gone := a != nil && a.kind == folder && (b == nil || b.kind != folder)
	differs := (p.Old == nil) != (p.New == nil) || p.Old != nil && p.New != nil && (p.Old.Exec != p.New.Exec || !p.Old.Same(p.New))
	if !gone && !differs {
		return d.budget.Step(1)
	}
	p.Path = at.path(either(a, b).name)
	if err := d.budget.Hold(pairMemory + len(p.Path)); err != nil {
		return tooLarge(err, "difference")
	}
	if gone {
		d.GoneDirs = append(d.GoneDirs, p.Path)
	}
	if differs {
		d.Pairs = append(d.Pairs, p)
	}
	return d.budget.Step(1)
}

// carried returns an Entry for a file or link, or nil for anything else.
func carried(e *entry) *Entry {
	switch {
	case e == nil:
		return nil
	case e.kind == file:
		return &Entry{Exec: e.mode&0o100 != 0, Size: e.size, entry: e}
	case e.kind == symlink:
		return &Entry{Link: true, Size: int64(len(e.target)), Target: e.target, entry: e}
	}
	return nil
}

// Open returns the content of a file that the comparison has found. It lets other calls run
// between any two pieces, so a slow reader delays nobody.
func (d *Between) Open(ctx context.Context, e *Entry) (io.ReadCloser, error) {
	return d.store.content(ctx, d.budget, e)
}

func (s *Store) content(ctx context.Context, b *budget.Budget, e *Entry) (io.ReadCloser, error) {
	if e.Link {
		return nil, tool.Errorf(tool.Internal, "a link has no content")
	}
	r := &contentReader{ctx: ctx, store: s, size: e.Size, free: func() {}}
	err := r.turn(func() (err error) {
		r.pieces, r.free, err = s.objects.pieces(b, e.entry)
		return err
	})
	if err != nil {
		return nil, storeError(err)
	}
	return r, nil
}

// contentReader reads a file piece by piece. Bytes that no piece covers are zero.
type contentReader struct {
	ctx    context.Context
	store  *Store
	pieces []piece
	free   func()
	size   int64
	at     int64
	piece  []byte // the rest of the current piece
}

func (r *contentReader) turn(do func() error) error {
	leave, err := r.store.enter(r.ctx)
	if err != nil {
		return err
	}
	defer leave()
	free, err := r.store.takeTurn(r.ctx)
	if err != nil {
		return err
	}
	defer free()
	return do()
}

// Read implements io.Reader.
func (r *contentReader) Read(p []byte) (n int, err error) {
	switch {
	case r.at == r.size:
		return 0, io.EOF
	case len(r.piece) > 0:
		n = copy(p, r.piece)
		r.piece = r.piece[n:]
	case len(r.pieces) > 0 && r.pieces[0].at == r.at:
		err = r.turn(func() (err error) {
			r.piece, err = r.store.objects.get(r.pieces[0].hash)
			return err
		})
		r.pieces = r.pieces[1:]
		return 0, storeError(err)
	default:
		n = int(min(int64(len(p)), r.hole()))
		clear(p[:n])
		if err := r.ctx.Err(); err != nil {
			return 0, tool.AsError(err)
		}
	}
	r.at += int64(n)
	return n, nil
}

// hole returns how many zeros come before the next piece.
func (r *contentReader) hole() int64 {
	if len(r.pieces) > 0 {
		return r.pieces[0].at - r.at
	}
	return r.size - r.at
}

// Close implements io.Closer.
func (r *contentReader) Close() error {
	r.free()
	return nil
}
