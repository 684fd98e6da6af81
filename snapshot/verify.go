package snapshot

import (
	"context"
	"errors"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Damage names a path of a snapshot whose stored content is lost.
type Damage struct {
	SnapshotID string `json:"snapshot_id"`
	Path       string `json:"path"` // made printable; "/" for the whole snapshot
}

// Verify reads everything that the snapshots refer to and returns the damaged paths, at most
// 1,000.
func (s *Store) Verify(ctx context.Context) ([]Damage, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ids, err := s.ids()
	if err != nil {
		return nil, storeError(err)
	}
	b := s.budget(ctx)
	defer b.Close()
	v := newVerifier(b, s.objects, s.opts.Limits.Entries)
	for _, id := range ids {
		v.id = id
		r, err := s.readRecord(id, "snapshot_id")
		if err != nil {
			v.note(nil)
			continue
		}
		if _, err := v.snapshot(r); err != nil {
			return v.found, storeError(tooLarge(err, "snapshot"))
		}
	}
	return v.found, nil
}

// verifier reads each object once, however many snapshots refer to it.
type verifier struct {
	budget  *budget.Budget
	objects *objects
	most    int64 // entries of one snapshot to check
	hashed  bool  // the hash of each object was checked already
	known   map[Hash]tally
	id      string
	left    int64
	found   []Damage
	buf     []byte
}

// tally is the result for an object: whether everything that it refers to is sound, and how much
// that is.
type tally struct {
	good                  bool
	entries, files, bytes int64
}

// tallyMemory is the memory of a tally with its hash in a map.
const tallyMemory = 130

func newVerifier(b *budget.Budget, o *objects, entries int64) *verifier {
	return &verifier{budget: b, objects: o, most: entries, known: map[Hash]tally{}, buf: make([]byte, chunkSize)}
}

func (v *verifier) snapshot(r *record) (tally, error) {
	v.id, v.left = r.ID, v.most
	top, err := r.top()
	if err != nil {
		return tally{}, err
	}
	return v.tree(top, nil)
}

func (v *verifier) note(p *place) {
	if len(v.found) < maxNamed {
		v.found = append(v.found, Damage{SnapshotID: v.id, Path: orRoot(p.clipped(""))})
	}
}

func orRoot(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// say records an object's result.
func (v *verifier) say(h Hash, t tally) (tally, error) {
	v.known[h] = t
	return t, v.budget.Hold(tallyMemory)
}

func (v *verifier) tree(e *entry, up *place) (tally, error) {
	at := &place{up: up, name: e.name}
	if up != nil {
		at.depth = up.depth + 1
	}
	if t, known := v.known[e.hash]; known {
		if !t.good { // it was reported under another name
			v.note(at)
		}
		return t, v.budget.Step(1)
	}
	if at.depth > maxDepth {
		v.note(at)
		return tally{}, nil
	}
	d, free, err := v.objects.dir(v.budget, e.hash)
	if damaged := (*damage)(nil); errors.As(err, &damaged) {
		v.note(at)
		return v.say(e.hash, tally{})
	}
	if err != nil {
		return tally{}, err
	}
	defer free()
	if v.left -= int64(len(d.entries)); v.left < 0 {
		return tally{}, tool.Errorf(tool.Limit, "the snapshots have too many directories and files to check; remove some snapshots, then retry")
	}
	all := tally{good: true}
	for i := range d.entries {
		t, err := v.entry(&d.entries[i], at)
		if err != nil {
			return tally{}, err
		}
		all.add(t)
	}
	return v.say(e.hash, all)
}

func (t *tally) add(o tally) {
	t.good = t.good && o.good
	t.entries, t.files, t.bytes = sum(t.entries, o.entries), sum(t.files, o.files), sum(t.bytes, o.bytes)
}

func (v *verifier) entry(e *entry, at *place) (tally, error) {
	if whole, err := v.attributes(e); err != nil || !whole {
		v.note(&place{up: at, name: e.name})
		return tally{}, err
	}
	switch e.kind {
	case folder:
		t, err := v.tree(e, at)
		t.entries = sum(t.entries, 1)
		return t, err
	case file:
		good, err := v.file(e)
		if err == nil && !good {
			v.note(&place{up: at, name: e.name})
		}
		return tally{good: good, entries: 1, files: 1, bytes: e.size}, err
	}
	return tally{good: true, entries: 1}, v.budget.Step(1)
}

// attributes reports whether the attributes of an entry are sound.
func (v *verifier) attributes(e *entry) (bool, error) {
	h := e.attrs()
	if h == (Hash{}) {
		return true, nil
	}
	if t, known := v.known[h]; known {
		return t.good, nil
	}
	b, free, err := v.objects.hold(v.budget, h)
	if damaged := (*damage)(nil); errors.As(err, &damaged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer free()
	_, err = decodeAttributes(b)
	t, err := v.say(h, tally{good: err == nil})
	return t.good, err
}

func (v *verifier) file(e *entry) (good bool, err error) {
	pieces, free, err := v.objects.pieces(v.budget, e)
	if damaged := (*damage)(nil); errors.As(err, &damaged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer free()
	good = true
	for _, p := range pieces {
		whole, err := v.piece(p)
		if err != nil {
			return false, err
		}
		good = good && whole
	}
	return good, v.budget.Step(1)
}

func (v *verifier) piece(p piece) (bool, error) {
	l, stored := v.objects.find(p.hash)
	if !stored || int64(l.length) != p.size || v.hashed {
		return stored && int64(l.length) == p.size, v.budget.Step(1)
	}
	t, known := v.known[p.hash]
	if known {
		return t.good, v.budget.Step(1)
	}
	_, err := v.objects.getInto(p.hash, v.buf)
	t, err = v.say(p.hash, tally{good: err == nil})
	return t.good, err
}
