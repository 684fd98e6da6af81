// Package scratch makes directories that are needed for a moment only. Each is locked while its process lives, so that
// the next one who makes a directory of the same kind removes what killed processes have left.
package scratch

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is such a directory. Close removes it.
type Dir struct {
	Name string // in its parent
	Path string // of the host; another process of this user may replace it

	parent *os.Root
	lock   *os.File
}

// New makes a directory of mode 0700 in the system's directory of temporary files. Its name begins with the prefix, which
// belongs to one kind of directories.
func New(prefix string) (*Dir, error) { return Below(os.TempDir(), prefix) }

// Below is like [New] in another directory.
func Below(parent, prefix string) (*Dir, error) {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return nil, err
	}
	sweep(root, prefix)
	d := &Dir{parent: root}
	for range tries {
		d.Name = prefix + strings.ToLower(rand.Text())
		d.Path = filepath.Join(parent, d.Name)
		if err = root.Mkdir(d.Name, 0o700); err != nil {
			break
		}
		if d.lock, err = take(root, d.Name); err == nil && d.isThere() {
			return d, nil
		}
		err = errors.Join(err, d.lock.Close()) // somebody else's sweep was between the two
	}
	return nil, errors.Join(err, root.Close())
}

const tries = 10

func (d *Dir) isThere() bool {
	here, err := d.parent.Lstat(d.Name)
	mine, err2 := d.lock.Stat()
	return err == nil && err2 == nil && os.SameFile(here, mine)
}

// Chown gives the directory to another user.
func (d *Dir) Chown(uid, gid int) error { return d.parent.Lchown(d.Name, uid, gid) }

// Parent returns the directory above, which is open as long as this one.
func (d *Dir) Parent() *os.Root { return d.parent }

// Close removes the directory with its content. It accepts nil.
func (d *Dir) Close() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.parent.RemoveAll(d.Name), d.lock.Close(), d.parent.Close())
}

// sweep removes the directories of that kind whose processes are gone. It is nobody's concern if that fails.
func sweep(parent *os.Root, prefix string) {
	all, err := fs.ReadDir(parent.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range all {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if lock, err := take(parent, e.Name()); err == nil {
			_ = parent.RemoveAll(e.Name())
			_ = lock.Close()
		}
	}
}

// take locks a directory of this user, or of any user for root, without waiting. The file is never nil.
func take(parent *os.Root, name string) (*os.File, error) {
	f, err := parent.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &os.File{}, err
	}
	info, err := f.Stat()
	if err == nil && os.Geteuid() != 0 && info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		err = fs.ErrPermission
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return &os.File{}, errors.Join(err, f.Close())
	}
	return f, nil
}
