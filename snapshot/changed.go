package snapshot

import "context"

// Changed are the paths of a workspace that differ from a snapshot.
type Changed struct {
	Total   int64    // entries that were added, changed or removed
	Present []string // of those that are there, the first ones, made printable
	Removed []string // of those that are gone
}

// Changed compares a snapshot with the workspace as it is and names the first
// entries that differ, at most max of them. It reads no more than Create would.
// Modification times don't count.
func (s *Store) Changed(ctx context.Context, id string, max int) (Changed, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return Changed{}, err
	}
	defer unlock()
	old, err := s.state(ctx, id, "snapshot_id")
	if err != nil {
		return Changed{}, storeError(err)
	}
	now, err := s.look(ctx)
	if err != nil {
		return Changed{}, storeError(err)
	}
	c := Changed{}
	if old.hash != now.hash {
		c.compare(newPlace(int(s.top.Fd())), old.dir, now.dir, max)
	}
	return c, nil
}

func (c *Changed) compare(at *place, old, now *dir, max int) {
	_ = pairs(old, now, func(a, b *entry) error {
		if a == nil || b == nil || !sameContent(a, b) || !sameMode(a, b) {
			c.add(b != nil, at.path(either(a, b).name), max)
		}
		if a != nil && b != nil && sameTree(a, b) {
			return nil
		}
		if inOld, inNow := inside(a), inside(b); inOld != nil || inNow != nil {
			c.compare(at.child(either(a, b).name), inOld, inNow, max)
		}
		return nil
	})
}

func (c *Changed) add(present bool, path string, max int) {
	c.Total++
	list := &c.Removed
	if present {
		list = &c.Present
	}
	if len(c.Present)+len(c.Removed) < max {
		*list = append(*list, clipPath(shown(path)))
	}
}

func either(a, b *entry) *entry {
	if a != nil {
		return a
	}
	return b
}

func inside(e *entry) *dir {
	if e == nil {
		return nil
	}
	return e.dir
}
