package snapshot

import (
	"sync/atomic"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// load reads a snapshot's whole tree into memory, charged to the budget. A tree can contain one
// directory many times, so it counts entries, not objects.
func (s *Store) load(b *budget.Budget, r *record) (*entry, error) {
	top, err := r.top()
	if err != nil {
		return nil, errFormat
	}
	l := &loader{objects: s.objects, budget: b, pool: newPool(b.Context()), most: s.opts.Limits.Entries}
	l.push(top, &place{})
	return top, tooLarge(l.pool.run(), "snapshot")
}

type loader struct {
	objects *objects
	budget  *budget.Budget
	pool    *pool
	most    int64
	entries atomic.Int64
}

func (l *loader) push(e *entry, at *place) {
	l.pool.push(job{do: func([]byte) error { return l.fill(e, at) }, drop: func() {}})
}

func (l *loader) fill(e *entry, at *place) error {
	d, _, err := l.objects.dir(l.budget, e.hash)
	if err != nil {
		return atPath(err, at)
	}
	e.dir = d
	if l.entries.Add(int64(len(e.dir.entries))) > l.most || at.depth > maxDepth {
		return tool.Errorf(tool.Limit, "the snapshot has more than %d entries or %d levels of directories, the maximum of a workspace", l.most, maxDepth)
	}
	for i := range e.dir.entries {
		if c := &e.dir.entries[i]; c.kind == folder {
			l.push(c, at.child(c.name))
		}
	}
	return nil
}

func atPath(err error, p *place) error {
	if err == nil {
		return nil
	}
	return at(err, p.clipped(""))
}

// dir reads a stored directory, whose memory stays charged until free is called.
func (o *objects) dir(b *budget.Budget, h Hash) (d *dir, free func(), err error) {
	raw, drop, err := o.hold(b, h)
	if err != nil {
		return nil, nil, err
	}
	defer drop() // the names have a copy
	n, err := countEntries(raw)
	if err != nil {
		return nil, nil, &damage{hash: h, why: err.Error()}
	}
	held := len(raw) + n*entryMemory + dirMemory
	if err := b.Hold(held); err != nil {
		return nil, nil, err
	}
	if d, err = decodeDir(raw); err != nil {
		b.Release(held)
		return nil, nil, &damage{hash: h, why: err.Error()}
	}
	return d, func() { b.Release(held) }, b.Step(n)
}

// hold reads an object of any length, whose memory stays charged until free is called.
func (o *objects) hold(b *budget.Budget, h Hash) (raw []byte, free func(), err error) {
	o.mu.Lock()
	held := int(o.index[h].length)
	o.mu.Unlock()
	if err := b.Hold(held); err != nil {
		return nil, nil, err
	}
	if raw, err = o.get(h); err != nil {
		b.Release(held)
		return nil, nil, err
	}
	return raw, func() { b.Release(held) }, nil
}

// pieces returns the parts of a file that aren't zero. The memory of the list stays charged until
// free is called.
func (o *objects) pieces(b *budget.Budget, e *entry) (pieces []piece, free func(), err error) {
	switch {
	case e.size == 0:
		return nil, func() {}, nil
	case !e.list:
		return []piece{{size: e.size, hash: e.hash}}, func() {}, nil
	}
	raw, drop, err := o.hold(b, e.hash)
	if err != nil {
		return nil, nil, err
	}
	defer drop()
	held := len(raw) / minPiece * pieceMemory
	if err := b.Hold(held); err != nil {
		return nil, nil, err
	}
	if pieces, err = decodePieces(raw, e.size); err != nil {
		b.Release(held)
		return nil, nil, &damage{hash: e.hash, why: err.Error()}
	}
	return pieces, func() { b.Release(held) }, nil
}
