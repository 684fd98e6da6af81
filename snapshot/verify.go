package snapshot

import (
	"context"
	"errors"

	"github.com/wisbox/wisbox/tool"
)

// Damage names a path of a snapshot whose stored content is lost.
type Damage struct {
	SnapshotID string `json:"snapshot_id"`
	Path       string `json:"path"` // made printable; "/" for the whole snapshot
}

// Verify reads everything that the snapshots refer to and names what is damaged,
// at most 1,000 paths.
func (s *Store) Verify(ctx context.Context) ([]Damage, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	found, err := s.verify(ctx)
	return found, storeError(err)
}

func (s *Store) verify(ctx context.Context) ([]Damage, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	v := &verifier{ctx: ctx, objects: s.objects, good: map[Hash]bool{}}
	for _, id := range ids {
		v.id, v.left = id, s.opts.Limits.Entries
		r, err := s.readRecord(id, "snapshot_id")
		if err != nil {
			v.note(nil)
			continue
		}
		top, err := r.top()
		if err != nil {
			return nil, err
		}
		if err := v.tree(top, nil); err != nil {
			return v.found, err
		}
	}
	return v.found, nil
}

type verifier struct {
	ctx     context.Context
	objects *objects
	good    map[Hash]bool
	id      string
	left    int64 // entries that may still be looked at
	found   []Damage
}

func (v *verifier) note(p *place) {
	if len(v.found) < maxNamed {
		v.found = append(v.found, Damage{SnapshotID: v.id, Path: clipPath(shown(p.path("")))})
	}
}

// tree says in good which trees are whole, so that each is read once.
func (v *verifier) tree(e *entry, up *place) error {
	at := &place{up: up, name: e.name}
	if up != nil {
		at.depth = up.depth + 1
	}
	if v.good[e.hash] {
		return nil
	}
	if at.depth > maxDepth {
		v.note(at)
		return nil
	}
	before := len(v.found)
	b, err := v.objects.get(e.hash)
	if err != nil {
		v.note(at)
		return v.ctx.Err()
	}
	d, err := decodeDir(b)
	if err != nil {
		v.note(at)
		return nil //nolint:nilerr // it is noted
	}
	if v.left -= int64(len(d.entries)); v.left < 0 {
		return tool.Errorf(tool.Limit, "the snapshots have more directories and files than can be checked")
	}
	for i := range d.entries {
		if err := v.entry(&d.entries[i], at); err != nil {
			return err
		}
	}
	v.good[e.hash] = len(v.found) == before
	return v.ctx.Err()
}

func (v *verifier) entry(e *entry, at *place) error {
	switch e.kind {
	case folder:
		return v.tree(e, at)
	case file:
		if !v.file(e) {
			v.note(&place{up: at, name: e.name})
		}
	}
	return v.ctx.Err()
}

func (v *verifier) file(e *entry) bool {
	pieces, err := v.objects.pieces(e)
	for _, p := range pieces {
		if v.good[p.hash] {
			continue
		}
		b, getErr := v.objects.get(p.hash)
		if getErr == nil && int64(len(b)) != p.size {
			getErr = errFormat
		}
		v.good[p.hash] = getErr == nil
		err = errors.Join(err, getErr)
	}
	return err == nil
}
