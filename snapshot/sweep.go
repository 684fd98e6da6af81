package snapshot

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Remove deletes snapshots and frees the room that nothing else needs.
func (s *Store) Remove(ctx context.Context, ids ...string) error {
	return s.forget(ctx, ids, func(b *budget.Budget) error { return s.sweep(b, usualWaste) })
}

// Forget deletes snapshots without freeing their room, which would mean to read all other
// snapshots. The next Remove frees it.
func (s *Store) Forget(ctx context.Context, ids ...string) error {
	return s.forget(ctx, ids, func(*budget.Budget) error { return nil })
}

func (s *Store) forget(ctx context.Context, ids []string, sweep func(*budget.Budget) error) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	ids = slices.Clone(ids)
	for i, word := range ids {
		if ids[i], err = s.find(word, "snapshot_id"); err != nil {
			return err
		}
		if err := s.removable(ids[i]); err != nil {
			return err
		}
	}
	if err := s.removeRecords(ids); err != nil {
		return storeError(err)
	}
	b := s.budget(ctx)
	defer b.Close()
	return storeError(sweep(b))
}

func (s *Store) removeRecords(ids []string) error {
	for _, id := range ids {
		if err := ignoreMissing(s.records.Remove(id + recordSuffix)); err != nil {
			return err
		}
	}
	return nil
}

// removable checks that a snapshot exists. A damaged record doesn't keep it from being removed.
func (s *Store) removable(id string) error {
	_, err := s.readRecord(id, "snapshot_id")
	if tool.KindOf(err) == tool.Unavailable {
		return nil
	}
	return err
}

// The share of a pack that may be unused before the pack is rewritten, in quarters.
const (
	usualWaste = 1
	noWaste    = 0
)

// sweep rewrites the packs with more waste than that, which is content that no snapshot refers
// to. It removes nothing unless it can read all snapshots.
func (s *Store) sweep(b *budget.Budget, waste int64) error {
	m := &marker{budget: b, objects: s.objects, live: map[Hash]bool{}}
	ids, err := s.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, err := s.readRecord(id, "")
		if err != nil {
			m.damaged = true
			break
		}
		if err := m.snapshot(r); err != nil {
			return err
		}
	}
	if m.damaged {
		return nil
	}
	return s.rewrite(s.wasteful(m.live, waste), m.live)
}

// claim is the room that a new snapshot needs.
type claim struct {
	bytes   int64 // target for the others, in bytes
	objects int
	must    int64  // maximum for the others, in bytes
	spare   string // a snapshot to keep
}

// makeRoom deletes the oldest automatic snapshots, until the rest of the store takes no more than
// the claim's bytes. It deletes none if the rest would still take more than must.
func (s *Store) makeRoom(b *budget.Budget, c claim) error {
	infos, err := s.list()
	if err != nil {
		return err
	}
	goes := func(i Info) bool { return i.passing() && i.ID != c.spare }
	slices.SortStableFunc(infos, func(x, y Info) int { // the first to go comes last
		return cmp.Or(compareBool(goes(x), goes(y)), -cmp.Compare(x.ID, y.ID))
	})
	m := &marker{budget: b, objects: s.objects, live: map[Hash]bool{}}
	var gone []string
	for _, i := range infos {
		if len(gone) == 0 {
			r, err := s.readRecord(i.ID, "")
			if err == nil {
				err = m.snapshot(r)
			}
			if err != nil {
				return err
			}
		}
		if !goes(i) && m.bytes > c.must {
			return errors.Join(s.errNoRoom(), s.sweep(b, usualWaste))
		}
		if len(gone) > 0 || goes(i) && (m.bytes > c.bytes || len(m.live) > c.objects) {
			gone = append(gone, i.ID)
		}
	}
	if err := s.removeRecords(gone); err != nil {
		return err
	}
	if err := s.sweep(b, usualWaste); err != nil || s.objects.taken <= c.bytes {
		return err
	}
	return s.sweep(b, noWaste)
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

// marker finds the objects that snapshots refer to.
type marker struct {
	budget  *budget.Budget
	objects *objects
	live    map[Hash]bool
	bytes   int64 // bytes of the live ones
	damaged bool
}

func (m *marker) snapshot(r *record) error {
	top, err := r.top()
	if err != nil {
		return err
	}
	return m.tree(top.hash)
}

// mark reports whether an object is seen for the first time.
func (m *marker) mark(h Hash) bool {
	if m.live[h] {
		return false
	}
	m.live[h] = true
	m.bytes += m.objects.index[h].cost()
	return true
}

func (m *marker) tree(h Hash) error {
	if !m.mark(h) {
		return nil
	}
	d, free, err := m.objects.dir(m.budget, h)
	if err != nil {
		if d := (*damage)(nil); errors.As(err, &d) {
			m.damaged = true
			return nil
		}
		return err
	}
	defer free()
	for i := range d.entries {
		if err := m.entry(&d.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m *marker) entry(e *entry) error {
	if h := e.attrs(); h != (Hash{}) {
		m.mark(h)
	}
	switch {
	case e.kind == folder:
		return m.tree(e.hash)
	case e.kind != file || e.size == 0 || !m.mark(e.hash):
		return m.budget.Step(1)
	case !e.list:
		return nil
	}
	pieces, free, err := m.objects.pieces(m.budget, e)
	if err != nil {
		if d := (*damage)(nil); errors.As(err, &d) {
			m.damaged = true
			return nil
		}
		return err
	}
	defer free()
	for _, p := range pieces {
		m.mark(p.hash)
	}
	return m.budget.Step(len(pieces))
}

// wasteful returns the packs of which more than so many quarters are unused, those without any
// use first.
func (s *Store) wasteful(live map[Hash]bool, waste int64) []*pack {
	used := map[*pack]int64{}
	for h, l := range s.objects.index {
		if live[h] {
			used[l.pack] += l.cost()
		}
	}
	var packs []*pack
	for _, p := range s.objects.packs {
		if useful := p.size - footerSize - int64(len(packMagic)); used[p] == 0 || used[p] < useful*(4-waste)/4 {
			packs = append(packs, p)
		}
	}
	slices.SortFunc(packs, func(a, b *pack) int { return cmp.Compare(used[a], used[b]) })
	return packs
}

// rewrite copies the live objects out of packs, then removes the packs: a few at a time, so that
// the store never takes much more than before. If it is killed in between, the store has some
// objects twice, which is harmless. If the disk is too full, the remaining packs stay; those
// without any use are gone by then.
func (s *Store) rewrite(packs []*pack, live map[Hash]bool) error {
	moved, copied := []*pack{}, int64(0)
	for _, p := range packs {
		n, err := s.copyLive(p, live)
		if err != nil {
			return stopped(errors.Join(err, s.objects.abandon()))
		}
		moved, copied = append(moved, p), copied+n
		if copied > 0 && copied < packSize {
			continue
		}
		if err := s.replacePacks(moved); err != nil {
			return stopped(err)
		}
		moved, copied = nil, 0
	}
	return stopped(s.replacePacks(moved))
}

// stopped ignores the error of a full disk.
func stopped(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

// copyLive copies the live objects of a pack and returns the number of bytes.
func (s *Store) copyLive(p *pack, live map[Hash]bool) (copied int64, err error) {
	var failed error
	err = p.each(func(h Hash, l location) {
		if failed == nil && s.objects.index[h].pack == p && (live == nil || live[h]) {
			copied += l.cost()
			failed = s.objects.copy(h, l)
		}
	})
	return copied, errors.Join(err, failed)
}

func (s *Store) replacePacks(packs []*pack) error {
	if _, err := s.objects.flush(); err != nil {
		return err
	}
	s.objects.forget(packs)
	for _, p := range packs {
		if err := ignoreMissing(s.packs.Remove(p.name)); err != nil {
			return err
		}
	}
	return nil
}

// copy copies an object's stored form as it is, even if it is damaged.
func (o *objects) copy(h Hash, l location) error {
	stored := make([]byte, l.stored)
	if _, err := l.pack.file.ReadAt(stored, l.offset); err != nil {
		return nil // the file was cut: it is lost already
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.append(h, int(l.length), stored)
}

const (
	smallPack = 1 << 20  // bytes
	midPack   = 16 << 20 // bytes
	manyPacks = 64       // of a size before they are put together
)

// merge keeps the number of packs, and so of open files, low.
func (s *Store) merge() error {
	for _, size := range []int64{smallPack, midPack} {
		var small []*pack
		for _, p := range s.objects.packs {
			if p.size < size {
				small = append(small, p)
			}
		}
		if len(small) >= manyPacks {
			return s.rewrite(small, nil)
		}
	}
	return nil
}
