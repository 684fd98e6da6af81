package snapshot

import "context"

// Changed lists the paths of a workspace that differ from a snapshot.
type Changed struct {
	Total   int64    // entries that were added, changed or removed
	Present []string // the first of those that exist, made printable
	Removed []string // the first of those that are gone, made printable
}

// ChangedOptions are options of [Store.Changed]; nil means all defaults.
type ChangedOptions struct {
	To string // another snapshot; default the current workspace
	// Ignore reports whether to ignore a path that differs; nil ignores none. Files below an
	// ignored directory aren't looked at.
	Ignore func(path string) bool
}

// Changed compares a snapshot with the current workspace or with another snapshot, and lists
// the first max entries that differ. It reads no more than Create would. It ignores
// modification times.
func (s *Store) Changed(ctx context.Context, id string, max int, opts *ChangedOptions) (Changed, error) {
	if opts == nil {
		opts = &ChangedOptions{}
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return Changed{}, err
	}
	defer unlock()
	b := s.budget(ctx)
	defer b.Close()
	r, err := s.readNamed(id, "snapshot_id")
	if err != nil {
		return Changed{}, storeError(err)
	}
	now, err := s.state(b, opts.To, "to")
	if err != nil {
		return Changed{}, storeError(err)
	}
	if now.hash.String() == r.Root {
		return Changed{}, nil
	}
	old, err := s.load(b, r)
	if err != nil {
		return Changed{}, storeError(err)
	}
	c := Changed{}
	c.compare(newPlace(int(s.top.Fd())), old.dir, now.dir, max, opts.Ignore)
	return c, nil
}

func (c *Changed) compare(at *place, old, now *dir, max int, ignore func(string) bool) {
	_ = pairs(old, now, func(a, b *entry) error {
		if a != nil && b != nil && sameTree(a, b) && sameMode(a, b) || ignore != nil && ignore(at.path(either(a, b).name)) {
			return nil
		}
		if a == nil || b == nil || !sameContent(a, b) || !sameMode(a, b) {
			c.add(b != nil, at, either(a, b).name, max)
		}
		if a != nil && b != nil && sameTree(a, b) {
			return nil
		}
		if inOld, inNow := inside(a), inside(b); inOld != nil || inNow != nil {
			c.compare(at.child(either(a, b).name), inOld, inNow, max, ignore)
		}
		return nil
	})
}

func (c *Changed) add(present bool, at *place, name string, max int) {
	c.Total++
	list := &c.Removed
	if present {
		list = &c.Present
	}
	if len(c.Present)+len(c.Removed) < max {
		*list = append(*list, at.clipped(name))
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
