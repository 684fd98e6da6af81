package snapshot

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

// stage prepares files and directories beside the workspace, each checked against its hash.
type stage struct {
	store  *Store
	budget *budget.Budget
	twin   *twin // may be nil
	done   *placed
	trash  *trash
	dir    int

	groups map[*entry]*group // wanted files with several names

	mu    sync.Mutex
	names map[*entry]string // of the files and directories that are ready
	leads []string          // names of files of groups
}

func newStage(s *Store, r *restore) *stage {
	return &stage{store: s, budget: r.budget, twin: r.twin, done: r.placed, trash: r.trash, groups: r.groups, dir: int(s.staging.Dir().Fd()), names: map[*entry]string{}}
}

// fill stages everything in the plan.
func (st *stage) fill(plan *plan) error {
	if err := st.size(plan); err != nil {
		return err
	}
	p := newPool(st.budget.Context())
	for _, w := range plan.files {
		p.push(job{do: func(buf []byte) error { return w.named(st.file(p.ctx, w, buf)) }, drop: func() {}})
	}
	walk := newDirWalk(p)
	defer walk.release()
	for _, w := range plan.trees {
		p.push(job{do: func([]byte) error { return st.tree(walk, w) }, drop: func() {}})
	}
	return p.run()
}

// size refuses to write more than a workspace may have, since a snapshot can contain a piece many
// times. It asks for room if more is written than freed.
func (st *stage) size(plan *plan) error {
	most := st.store.opts.Limits.Bytes
	left := most
	counted := map[*group]bool{}
	spend := func(at *place, e *entry) error {
		if e.kind != file {
			return nil
		}
		if g := st.groups[e]; g != nil { // one file, or none if one of the workspace stays
			if counted[g] || g.from != nil {
				return nil
			}
			counted[g] = true
		}
		pieces, free, err := st.store.objects.pieces(st.budget, e)
		if err != nil {
			return wanted{at: at, entry: e}.named(err)
		}
		defer free()
		for _, p := range pieces {
			if left -= p.size; left < 0 {
				return tool.Errorf(tool.Limit, "the restore would write more than %d bytes, the maximum; nothing was changed", most)
			}
		}
		return nil
	}
	for _, w := range plan.files {
		if err := spend(w.at, w.entry); err != nil {
			return err
		}
	}
	for _, w := range plan.trees {
		var failed error
		walkTree(w.entry.dir, w.at.child(w.entry.name), func(at *place, e *entry) {
			if failed == nil {
				failed = spend(at, e)
			}
		})
		if failed != nil {
			return failed
		}
	}
	if most-left <= plan.frees {
		return nil
	}
	return st.store.room(st.budget.Context())
}

func (st *stage) file(ctx context.Context, w wanted, buf []byte) error {
	if g := st.groups[w.entry]; g != nil {
		name := st.store.staging.Name()
		if err := st.join(ctx, g, st.dir, name, w.entry, buf); err != nil {
			return err
		}
		st.ready(w.entry, name)
		return nil
	}
	fd, err := st.unnamed(w.at, w.entry.mode)
	if err != nil {
		return st.named(ctx, w, buf)
	}
	defer unix.Close(fd)
	twin := st.twin.open(w.at.path(""))
	defer closeIf(twin)
	if err := st.make(ctx, fd, twin, w.entry, buf); err != nil {
		return err
	}
	name := st.store.staging.Name()
	if err := sys.LinkUnnamed(fd, st.dir, name); err != nil {
		return st.named(ctx, w, buf)
	}
	st.ready(w.entry, name)
	return nil
}

// unnamed creates a file without a name in its final directory: file systems keep an inode near
// the directory that it was created in, and with thousands of them in one directory ext4 takes a
// millisecond for each. Nobody else can open it, so it gets its final mode at once.
func (st *stage) unnamed(at *place, mode uint32) (int, error) {
	dir, err := at.open(sys.Place)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return sys.Unnamed(dir, mode)
}

// named is for file systems without support for files without a name.
func (st *stage) named(ctx context.Context, w wanted, buf []byte) error {
	t, err := st.store.staging.Create(0o600)
	if err != nil {
		return err
	}
	st.ready(w.entry, t.Name())
	return errors.Join(st.make(ctx, int(t.Fd()), -1, w.entry, buf), t.Close())
}

func (st *stage) ready(e *entry, name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.names[e] = name
}

// make sets the content, owner, mode and time of a new file. twin is the directory of the twin
// that may have the same file, or -1.
func (st *stage) make(ctx context.Context, fd, twin int, e *entry, buf []byte) error {
	if !st.twin.share(fd, twin, e) {
		if err := st.write(ctx, fd, e, buf); err != nil {
			return err
		}
	}
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return err
	}
	// The owner first: changing it clears mode bits.
	if o := st.store.opts.Owner; o != nil && (is.Uid != uint32(o.UID) || is.Gid != uint32(o.GID)) {
		if err := unix.Fchown(fd, o.UID, o.GID); err != nil {
			return err
		}
	}
	if e.attrs() != (Hash{}) {
		if err := errors.Join(unix.Fchmod(fd, 0o600), st.setUserAttributes(fd, e), unix.Fstat(fd, &is)); err != nil {
			return err
		}
	}
	st.done.note(is.Ino, e)
	return setAttributes(fd, &is, e)
}

func (st *stage) write(ctx context.Context, fd int, e *entry, buf []byte) error {
	pieces, free, err := st.store.objects.pieces(st.budget, e)
	if err != nil {
		return err
	}
	defer free()
	if e.list {
		if err := unix.Ftruncate(fd, e.size); err != nil {
			return err
		}
	}
	for _, p := range pieces {
		content, err := st.store.objects.getInto(p.hash, buf)
		if err != nil {
			return err
		}
		if int64(len(content)) != p.size {
			return &damage{hash: p.hash, why: "has another length"}
		}
		if err := errors.Join(ctx.Err(), writePiece(fd, content, p.at, e.list)); err != nil {
			return err
		}
	}
	return nil
}

const page = 4 << 10

var zeroPage [page]byte

// writePiece writes a piece, without pages of zeros if the file may have holes.
func writePiece(fd int, b []byte, at int64, holes bool) error {
	for len(b) > 0 {
		skip := 0
		for holes && len(b)-skip >= page && bytes.Equal(b[skip:skip+page], zeroPage[:]) {
			skip += page
		}
		b, at = b[skip:], at+int64(skip)
		n := len(b)
		if holes {
			n = dataLength(b)
		}
		if err := writeAll(fd, b[:n], at); err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// dataLength returns the number of bytes before the next page of zeros.
func dataLength(b []byte) int {
	for n := 0; ; n += page {
		if len(b)-n < page {
			return len(b)
		}
		if n > 0 && bytes.Equal(b[n:n+page], zeroPage[:]) {
			return n
		}
	}
}

func writeAll(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := retry.Interrupted(func() (int, error) { return unix.Pwrite(fd, b, at) })
		if err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// setAttributes sets the mode and time of e on an open file, if they differ. The descriptor may
// be a mere [sys.Place].
func setAttributes(fd int, is *unix.Stat_t, e *entry) error {
	if uint32(is.Mode)&0o7777 != e.mode {
		if err := sys.Chmod(fd, e.mode); err != nil {
			return err
		}
	}
	if is.Mtim.Nano() == e.mtime {
		return nil
	}
	return sys.SetTimes(fd, times(e))
}

func times(e *entry) []unix.Timespec {
	t := unix.NsecToTimespec(e.mtime)
	return []unix.Timespec{t, t}
}

// folder creates an empty directory, which gets its mode once it is filled.
func (st *stage) folder(dir int, name string) error {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return err
	}
	return st.own(dir, name)
}

func (st *stage) own(dir int, name string) error {
	o := st.store.opts.Owner
	if o == nil {
		return nil
	}
	return unix.Fchownat(dir, name, o.UID, o.GID, unix.AT_SYMLINK_NOFOLLOW)
}

func (st *stage) link(dir int, name string, e *entry) error {
	if err := unix.Symlinkat(e.target, dir, name); err != nil {
		return err
	}
	return errors.Join(st.own(dir, name), unix.UtimesNanoAt(dir, name, times(e), unix.AT_SYMLINK_NOFOLLOW))
}

// has reports whether an entry is staged.
func (st *stage) has(e *entry) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, ok := st.names[e]
	return ok
}

// take returns the name of the staged form of e. It creates entries that need no check now.
func (st *stage) take(e *entry) (string, error) {
	if e.kind == symlink {
		name := st.store.staging.Name()
		return name, st.link(st.dir, name, e)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	name, ok := st.names[e]
	if !ok {
		return "", beneath.ErrChanged
	}
	delete(st.names, e)
	return name, nil
}

// discard begins to remove the staged entries that weren't taken, and all entries that were moved
// out of the workspace.
func (st *stage) discard() {
	for _, name := range st.names {
		st.trash.drop(name)
	}
	for _, name := range st.leads {
		st.trash.drop(name)
	}
	st.names, st.leads = nil, nil
	st.trash.empty()
}
