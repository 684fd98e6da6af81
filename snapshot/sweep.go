package snapshot

import (
	"context"
	"errors"

	"github.com/wisbox/wisbox/tool"
)

// Remove forgets snapshots and gives back the room that nothing else needs.
func (s *Store) Remove(ctx context.Context, ids ...string) error {
	return s.forget(ctx, ids, s.sweep)
}

// Forget is Remove without looking for the room, which takes reading all other
// snapshots: the next Remove gives it back.
func (s *Store) Forget(ctx context.Context, ids ...string) error {
	return s.forget(ctx, ids, func(context.Context) error { return nil })
}

func (s *Store) forget(ctx context.Context, ids []string, sweep func(context.Context) error) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, id := range ids {
		if err := s.removable(id); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := ignoreMissing(s.records.Remove(id + recordSuffix)); err != nil {
			return storeError(err)
		}
	}
	return storeError(sweep(ctx))
}

// removable lets a snapshot with a damaged record go, too.
func (s *Store) removable(id string) error {
	_, err := s.readRecord(id, "snapshot_id")
	if tool.KindOf(err) == tool.Unavailable {
		return nil
	}
	return err
}

// sweep rewrites the packs that hold much of what no snapshot refers to. It
// removes nothing while it can't tell what all snapshots need.
func (s *Store) sweep(ctx context.Context) error {
	m := &marker{ctx: ctx, objects: s.objects, live: map[Hash]bool{}}
	ids, err := s.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.mark(m, id); err != nil {
			return err
		}
	}
	if m.damaged {
		return nil
	}
	return s.rewrite(s.wasteful(m.live), m.live)
}

func (s *Store) mark(m *marker, id string) error {
	r, err := s.readRecord(id, "")
	if err != nil {
		m.damaged = true
		return nil //nolint:nilerr // a damaged record stops the sweep, not the call
	}
	top, err := r.top()
	if err != nil {
		return err
	}
	return m.tree(top.hash)
}

// marker finds the objects that snapshots refer to.
type marker struct {
	ctx     context.Context
	objects *objects
	live    map[Hash]bool
	damaged bool
}

func (m *marker) tree(h Hash) error {
	if m.live[h] {
		return nil
	}
	m.live[h] = true
	b, ok := m.get(h)
	if !ok {
		return m.ctx.Err()
	}
	d, err := decodeDir(b)
	if err != nil {
		m.damaged = true
		return nil //nolint:nilerr // as for the record
	}
	for i := range d.entries {
		if err := m.entry(&d.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m *marker) entry(e *entry) error {
	switch {
	case e.kind == folder:
		return m.tree(e.hash)
	case e.kind != file || e.size == 0 || m.live[e.hash]:
		return nil
	}
	m.live[e.hash] = true
	if !e.list {
		return nil
	}
	pieces, err := m.objects.pieces(e)
	if err != nil {
		m.damaged = true
	}
	for _, p := range pieces {
		m.live[p.hash] = true
	}
	return m.ctx.Err()
}

func (m *marker) get(h Hash) ([]byte, bool) {
	b, err := m.objects.get(h)
	if err != nil {
		m.damaged = true
	}
	return b, err == nil
}

// wasteful are the packs of which more than a quarter is of no use.
func (s *Store) wasteful(live map[Hash]bool) []*pack {
	var packs []*pack
	for _, p := range s.objects.packs {
		var used, all int64
		for _, h := range p.hash {
			l := s.objects.index[h]
			all += objectHeader + indexEntry + int64(l.stored)
			if live[h] && l.pack == p {
				used += objectHeader + indexEntry + int64(l.stored)
			}
		}
		if used < all*3/4 || used == 0 {
			packs = append(packs, p)
		}
	}
	return packs
}

// rewrite moves what is live out of packs, then removes them. Killed in between,
// an object lies twice in the store, which harms nothing.
func (s *Store) rewrite(packs []*pack, live map[Hash]bool) error {
	for _, p := range packs {
		for _, h := range p.hash {
			if l := s.objects.index[h]; l.pack == p && (live == nil || live[h]) {
				if err := s.objects.copy(h, l); err != nil {
					return errors.Join(err, s.objects.abandon())
				}
			}
		}
	}
	if _, err := s.objects.flush(); err != nil {
		return err
	}
	for _, p := range packs {
		s.objects.forget(p)
		if err := ignoreMissing(s.packs.Remove(p.name)); err != nil {
			return err
		}
	}
	return nil
}

// copy moves an object's stored form as it is: damage stays damage.
func (o *objects) copy(h Hash, l location) error {
	stored := make([]byte, l.stored)
	if _, err := l.pack.file.ReadAt(stored, l.offset); err != nil {
		return nil //nolint:nilerr // cut off: it is lost already
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.append(h, int(l.length), stored)
}

const (
	smallPack = 1 << 20 // bytes
	manyPacks = 64      // small packs before they are put together
)

// merge keeps the number of packs, and so of open files, low.
func (s *Store) merge() error {
	var small []*pack
	for _, p := range s.objects.packs {
		if p.size < smallPack {
			small = append(small, p)
		}
	}
	if len(small) < manyPacks {
		return nil
	}
	return s.rewrite(small, nil)
}
