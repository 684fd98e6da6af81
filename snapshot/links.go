package snapshot

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/sys"
)

// maxFirst bounds the path of a file's first name. Names whose first one has a longer path are stored
// as separate files.
const maxFirst = 4_000

// joinNames finds files with several names (hard links) in a scanned tree: all but the first, in the
// order of the tree, get its path and its content. apart are the names that are stored as separate files.
func joinNames(b *budget.Budget, root *entry) (apart names, err error) {
	type name struct {
		at *place
		e  *entry
	}
	firsts := map[uint64]name{}
	walkTree(root.dir, nil, func(at *place, e *entry) {
		if err != nil || e.kind != file || e.links < 2 {
			return
		}
		first, known := firsts[e.ino]
		if !known {
			firsts[e.ino] = name{at, e}
			err = b.Hold(moreMemory)
			return
		}
		path := first.at.path(first.e.name)
		if len(path) > maxFirst {
			apart.add(at, e.name)
			return
		}
		if err = b.Hold(moreMemory + len(path)); err != nil {
			return
		}
		f := first.e
		e.hash, e.list, e.size, e.mtime, e.ctime, e.mode = f.hash, f.list, f.size, f.mtime, f.ctime, f.mode
		e.sure, e.unstable, e.more = f.sure, f.unstable, f.more
		e.setFirst(path)
	})
	return apart, tooLarge(err, "workspace")
}

// group is a file of a snapshot with several names.
type group struct {
	names int // how many

	// Of one round of a restore.
	chosen uint64      // the inode that stays; 0 for a new file
	from   *linkSource // a name of the chosen inode

	mu   sync.Mutex // guards the fields below
	lead string     // a name in the staging directory
}

// linkSource is a name of a file in the workspace.
type linkSource struct {
	at *place
	e  *entry
}

// groupsOf finds the files with several names in a stored tree. A reference to anything but an equal
// file, which only a damaged or hostile archive has, counts as none.
func groupsOf(top *entry) map[*entry]*group {
	groups := map[*entry]*group{}
	walkTree(top.dir, nil, func(_ *place, e *entry) {
		if e.first() == "" {
			return
		}
		first := top.find(e.first())
		if first == nil || first == e || first.first() != "" || !sameContent(first, e) || !sameMode(first, e) || first.mtime != e.mtime {
			return
		}
		g := groups[first]
		if g == nil {
			g = &group{names: 1}
			groups[first] = g
		}
		g.names++
		groups[e] = g
	})
	return groups
}

const linkedMemory = 40

// linked is a wanted file that has several names, or whose file in the workspace has.
type linked struct {
	at   *place
	a, b *entry // in the workspace, may be nil, and wanted
}

// planNames adds to a plan the files whose names must be joined or parted. Of each group one inode of the
// workspace may stay, if nothing else that stays shares it.
func (r *restore) planNames(p *plan) {
	users := map[uint64]map[*group]int{}
	for _, l := range r.linked {
		if l.a == nil || l.a.kind != file || needsStaging(l.a, l.b) {
			continue
		}
		if users[l.a.ino] == nil {
			users[l.a.ino] = map[*group]int{}
		}
		users[l.a.ino][r.groups[l.b]]++
	}
	for _, g := range r.groups {
		g.chosen, g.from, g.lead = 0, nil, ""
	}
	most := map[*group]int{}
	for ino, by := range users {
		for g, n := range by {
			if g != nil && len(by) == 1 && (n > most[g] || n == most[g] && ino < g.chosen) {
				g.chosen, most[g] = ino, n
			}
		}
	}
	for _, l := range r.linked {
		stays := l.a != nil && l.a.kind == file && !needsStaging(l.a, l.b)
		g := r.groups[l.b]
		switch {
		case g == nil && (!stays || len(users[l.a.ino]) == 1 && users[l.a.ino][nil] == 1):
			continue
		case g != nil && stays && l.a.ino == g.chosen:
			if g.from == nil {
				g.from = &linkSource{l.at, l.a}
			}
			continue
		case g == nil && !r.parts: // the snapshot is from a version that didn't know
			continue
		}
		if stays { // otherwise it is in the plan already
			r.note(p, l.at, l.b, &r.out.Changed)
			p.files = append(p.files, wanted{at: l.at, entry: l.b})
		}
	}
}

// leadOf returns a name in the staging directory of the file of a group, which is linked to its places
// from there.
func (st *stage) leadOf(ctx context.Context, g *group, e *entry, buf []byte) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lead != "" {
		return g.lead, nil
	}
	name := st.store.staging.Name()
	if g.from != nil && st.linkFrom(g.from, name) {
		g.lead = name
	} else {
		t, err := st.store.staging.Create(0o600)
		if err != nil {
			return "", err
		}
		g.lead = t.Name()
		if err := errors.Join(st.make(ctx, int(t.Fd()), -1, e, buf), t.Close()); err != nil {
			return "", err
		}
	}
	st.mu.Lock()
	st.leads = append(st.leads, g.lead)
	st.mu.Unlock()
	return g.lead, nil
}

// linkFrom links a file of the workspace into the staging directory, if it still is the file that the
// scan has seen.
func (st *stage) linkFrom(from *linkSource, name string) bool {
	dir, err := from.at.open(sys.Place)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	if unix.Linkat(dir, from.e.name, st.dir, name, 0) != nil {
		return false
	}
	var is unix.Stat_t
	err = unix.Fstatat(st.dir, name, &is, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && is.Mode&unix.S_IFMT == unix.S_IFREG && is.Ino == from.e.ino && is.Size == from.e.size && is.Mtim.Nano() == from.e.mtime {
		return true
	}
	_ = unix.Unlinkat(st.dir, name, 0)
	return false
}

// join makes a name in dir for the file of a group.
func (st *stage) join(ctx context.Context, g *group, dir int, name string, e *entry, buf []byte) error {
	lead, err := st.leadOf(ctx, g, e, buf)
	if err != nil {
		return err
	}
	return unix.Linkat(st.dir, lead, dir, name, 0)
}
