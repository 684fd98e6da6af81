package beneath

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/sandbox"
)

// Staging is the directory where files are created before they become visible. It is on the tree's
// file system, and no program can reach it.
type Staging struct {
	dir   *os.File
	owner *sandbox.Owner
	sync  bool
	later Later
}

const (
	tempPrefix = "wisbox-tmp-"
	slowPrefix = "wisbox-slow-"
	slowLife   = time.Hour
)

// NewStaging returns a Staging in root. With a nil owner, files belong to the process's own user;
// sync makes every file and every rename durable before the call returns. root stays the caller's.
func NewStaging(root *os.Root, owner *sandbox.Owner, sync bool) (*Staging, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open the staging directory: %w", err)
	}
	return &Staging{dir: dir, owner: owner, sync: sync}, nil
}

// Close stops the removals of [Staging.Free] and closes the staging directory.
func (s *Staging) Close() error {
	s.later.Close()
	return s.dir.Close()
}

// Dir returns the staging directory. The caller must not close it.
func (s *Staging) Dir() *os.File { return s.dir }

// Owner returns the owner of staged files; nil is the process's own user.
func (s *Staging) Owner() *sandbox.Owner { return s.owner }

// Name returns a fresh name in the staging directory that [Staging.Sweep] recognizes.
func (s *Staging) Name() string { return tempPrefix + strings.ToLower(rand.Text()) }

// Remove calls [Later.Remove] for a name in the staging directory.
func (s *Staging) Remove(ctx context.Context, name string) (entries int64, err error) {
	return s.later.Remove(ctx, s.dir, s.spare(name))
}

// Free removes names in the staging directory in the background.
func (s *Staging) Free(names ...string) error {
	if len(names) == 0 {
		return nil
	}
	for i, name := range names {
		names[i] = s.spare(name)
	}
	return s.later.Free(s.dir, names...)
}

// spare renames an entry that a sweep must not wait for.
func (s *Staging) spare(name string) string {
	slow, dir := slowPrefix+strings.ToLower(rand.Text()), int(s.dir.Fd())
	if sys.Rename(dir, name, dir, slow, sys.NoReplace) != nil {
		return name
	}
	return slow
}

// sweepTime bounds a Sweep: others wait for its lock, and entries that it leaves only take space.
var sweepTime = patience.For(3 * time.Second)

// Sweep removes the files of killed processes, in at most 3 s; it leaves the rest to a later Sweep.
// Call it only under the lock of all writers of this directory.
func (s *Staging) Sweep() error {
	fd, err := unix.Openat(int(s.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stale []string
	err = ReadDir(fd, func(e Entry) bool {
		if strings.HasPrefix(e.Name, tempPrefix) || strings.HasPrefix(e.Name, slowPrefix) && olderThan(fd, e.Name, slowLife) {
			stale = append(stale, strings.Clone(e.Name))
		}
		return true
	})
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	for _, name := range stale {
		if _, rmErr := RemoveAllContext(ctx, s.dir, name); ctx.Err() == nil {
			err = errors.Join(err, gone(rmErr))
		}
	}
	return err
}

func olderThan(dir int, name string, age time.Duration) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && time.Since(time.Unix(st.Mtim.Unix())) > age
}

// Temp is a file that isn't visible yet. Write to it, then place it or discard it.
type Temp struct {
	*os.File
	s    *Staging
	name string
}

// Create creates a file with mode (permission bits only) and the staging's owner.
func (s *Staging) Create(mode fs.FileMode) (*Temp, error) { return s.create(s.Name(), mode) }

// CreateSlow is like [Staging.Create] for a file that is written without the writers' lock, for
// instance from a stream: sweeps leave it alone for an hour.
func (s *Staging) CreateSlow(mode fs.FileMode) (*Temp, error) {
	return s.create(slowPrefix+strings.ToLower(rand.Text()), mode)
}

func (s *Staging) create(name string, mode fs.FileMode) (*Temp, error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(s.dir.Fd()), name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	t := &Temp{File: os.NewFile(uintptr(fd), name), s: s, name: name}
	if err := s.adopt(fd, mode); err != nil {
		t.Discard()
		return nil, err
	}
	return t, nil
}

// adopt sets owner and mode by descriptor, in this order, because a change of owner may clear mode
// bits.
func (s *Staging) adopt(fd int, mode fs.FileMode) error {
	if s.owner != nil {
		if err := unix.Fchown(fd, s.owner.UID, s.owner.GID); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, uint32(mode.Perm()))
}

// Mkdir creates the directory p, with its owner and mode before it becomes visible. For an existing
// entry it returns EEXIST.
func (s *Staging) Mkdir(p *Parent, mode fs.FileMode) error {
	name := s.Name()
	if err := unix.Mkdirat(int(s.dir.Fd()), name, 0o700); err != nil {
		return err
	}
	err := s.adoptDir(name, mode)
	if err == nil {
		err = renameNoReplace(s.dir, name, p.dir, p.Name)
	}
	if err != nil {
		_ = unix.Unlinkat(int(s.dir.Fd()), name, unix.AT_REMOVEDIR)
		return err
	}
	return s.syncDir(p.dir)
}

func (s *Staging) adoptDir(name string, mode fs.FileMode) error {
	fd, err := OpenAt(int(s.dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return s.adopt(fd, mode)
}

// Flush makes the content durable if the staging is synced.
func (t *Temp) Flush() error {
	if !t.s.sync {
		return nil
	}
	return t.Sync()
}

// Place moves the file to p; for an existing entry it returns EEXIST.
func (t *Temp) Place(p *Parent) error {
	if err := renameNoReplace(t.s.dir, t.name, p.dir, p.Name); err != nil {
		return err
	}
	return t.s.syncDir(p.dir)
}

// Swap exchanges the file with the entry at p, which then has the file's old name and is removed by
// [Temp.Discard]. If fits returns false for that entry, Swap undoes the exchange and returns
// [ErrChanged].
func (t *Temp) Swap(p *Parent, fits func(*unix.Stat_t) bool) error {
	if err := t.exchange(p); unsupported(err) {
		return t.replace(p, fits)
	} else if err != nil {
		return err
	}
	if err := t.s.check(t.name, fits); err != nil {
		return errors.Join(err, t.exchange(p))
	}
	return t.s.syncDir(p.dir)
}

func (s *Staging) check(name string, fits func(*unix.Stat_t) bool) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(s.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if !fits(&st) {
		return ErrChanged
	}
	return nil
}

// replace is like Swap for file systems that can't exchange names: a second name
// keeps what is there, then one rename replaces it.
func (t *Temp) replace(p *Parent, fits func(*unix.Stat_t) bool) error {
	keep, dir := t.s.Name(), int(t.s.dir.Fd())
	if err := unix.Linkat(int(p.dir.Fd()), p.Name, dir, keep, 0); err != nil {
		return err
	}
	err := t.s.check(keep, fits)
	if err == nil {
		err = unix.Renameat(dir, t.name, int(p.dir.Fd()), p.Name)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(dir, keep, 0))
	}
	t.name = keep
	return t.s.syncDir(p.dir)
}

// unsupported reports whether the file system lacks a flag of renameat2.
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)
}

// Back undoes a Place or, with swapped, a Swap.
func (t *Temp) Back(p *Parent, swapped bool) error {
	if !swapped {
		return renameNoReplace(p.dir, p.Name, t.s.dir, t.name)
	}
	err := t.exchange(p)
	if unsupported(err) {
		err = unix.Renameat(int(t.s.dir.Fd()), t.name, int(p.dir.Fd()), p.Name)
	}
	return err
}

func (t *Temp) exchange(p *Parent) error {
	return sys.Rename(int(t.s.dir.Fd()), t.name, int(p.dir.Fd()), p.Name, sys.Exchange)
}

// Discard closes the file and removes the entry with its name in the staging directory: the file
// itself, or the entry that it replaced.
func (t *Temp) Discard() {
	_ = t.Close()
	_, _ = RemoveAll(t.s.dir, t.name)
}

func (s *Staging) syncDir(dir *os.File) error {
	if !s.sync {
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // a directory that can't be read can't be synced; the rename stands
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// Move renames the entry at from; for an existing entry at to it returns EEXIST.
func (s *Staging) Move(from, to *Parent) error {
	if err := renameNoReplace(from.dir, from.Name, to.dir, to.Name); err != nil {
		return err
	}
	return errors.Join(s.syncDir(to.dir), s.syncDir(from.dir))
}

// renameNoReplace falls back to a hard link if the file system has no RENAME_NOREPLACE, and to
// mkdir for a directory.
func renameNoReplace(from *os.File, old string, to *os.File, name string) error {
	err := sys.Rename(int(from.Fd()), old, int(to.Fd()), name, sys.NoReplace)
	if !unsupported(err) {
		return err
	}
	if err := unix.Linkat(int(from.Fd()), old, int(to.Fd()), name, 0); err != nil {
		return err
	}
	return unix.Unlinkat(int(from.Fd()), old, 0)
}
