package snapshot

import (
	"context"

	"github.com/wisbox/wisbox/tool"
)

// load reads a snapshot's whole tree into memory. A tree can name one directory
// many times over, so the entries are counted, not the objects.
func (s *Store) load(ctx context.Context, r *record) (*entry, error) {
	top, err := r.top()
	if err != nil {
		return nil, errFormat
	}
	l := &loader{ctx: ctx, objects: s.objects, left: s.opts.Limits.Entries}
	return top, l.fill(top, nil, 0)
}

type loader struct {
	ctx     context.Context
	objects *objects
	left    int64
}

func (l *loader) fill(e *entry, up *place, depth int) error {
	at := &place{up: up, name: e.name}
	if err := l.ctx.Err(); err != nil {
		return err
	}
	b, err := l.objects.get(e.hash)
	if err != nil {
		return atPath(err, at)
	}
	if e.dir, err = decodeDir(b); err != nil {
		return atPath(&damage{hash: e.hash, why: err.Error()}, at)
	}
	if l.left -= int64(len(e.dir.entries)); l.left < 0 || depth > maxDepth {
		return tool.Errorf(tool.Limit, "the snapshot has more entries than a workspace may hold")
	}
	for i := range e.dir.entries {
		if c := &e.dir.entries[i]; c.kind == folder {
			if err := l.fill(c, at, depth+1); err != nil {
				return err
			}
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
