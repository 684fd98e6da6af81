package snapshot

import (
	"context"
	"sync/atomic"

	"github.com/wisbox/wisbox/tool"
)

// load reads a snapshot's whole tree into memory. A tree can name one directory
// many times over, so the entries are counted, not the objects.
func (s *Store) load(ctx context.Context, r *record) (*entry, error) {
	top, err := r.top()
	if err != nil {
		return nil, errFormat
	}
	l := &loader{objects: s.objects, pool: newPool(ctx), most: s.opts.Limits.Entries}
	l.push(top, &place{})
	return top, l.pool.run()
}

type loader struct {
	objects *objects
	pool    *pool
	most    int64
	entries atomic.Int64
}

func (l *loader) push(e *entry, at *place) {
	l.pool.push(job{do: func(buf []byte) error { return l.fill(e, at, buf) }, drop: func() {}})
}

func (l *loader) fill(e *entry, at *place, buf []byte) error {
	b, err := l.objects.getInto(e.hash, buf)
	if err != nil {
		return atPath(err, at)
	}
	if e.dir, err = decodeDir(b); err != nil {
		return atPath(&damage{hash: e.hash, why: err.Error()}, at)
	}
	if l.entries.Add(int64(len(e.dir.entries))) > l.most || at.depth > maxDepth {
		return tool.Errorf(tool.Limit, "the snapshot has more entries than a workspace may hold")
	}
	for i := range e.dir.entries {
		if c := &e.dir.entries[i]; c.kind == folder {
			l.push(c, at.child(c.name))
		}
	}
	return nil
}

func atPath(err error, p *place) error { return at(err, p.path("")) }

// pieces are the parts of a file that aren't zero.
func (o *objects) pieces(e *entry) ([]piece, error) {
	switch {
	case e.size == 0:
		return nil, nil
	case !e.list:
		return []piece{{size: e.size, hash: e.hash}}, nil
	}
	b, err := o.get(e.hash)
	if err != nil {
		return nil, err
	}
	pieces, err := decodePieces(b, e.size)
	if err != nil {
		return nil, &damage{hash: e.hash, why: err.Error()}
	}
	return pieces, nil
}
