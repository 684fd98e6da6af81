package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/filewire"
)

// maxDepth is the maximum number of directories that a removal has open at once.
const maxDepth = 32

func (w *worker) mkdir(path string) error {
	if w.ask.Parents {
		dir, _ := split(path)
		if err := mkdirAll(dir); err != nil {
			return err
		}
	}
	return unix.Mkdir(path, w.ask.Mode)
}

func mkdirAll(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil || err != unix.ENOENT {
		return err
	}
	if dir, base := split(path); base != "" {
		if err := mkdirAll(dir); err != nil {
			return err
		}
	}
	err := unix.Mkdir(path, dirMode)
	if err == unix.EEXIST { // now, or as ".." and the like
		return nil
	}
	return err
}

func (w *worker) move(from, to string) error {
	source, name, err := openParent(from, false)
	if err != nil {
		return err
	}
	defer source.Close()
	if len(to) == 0 || to[0] != '/' {
		return unix.EINVAL
	}
	target, base, err := openParent(to, w.ask.Parents)
	if err != nil {
		return err
	}
	defer target.Close()
	flags := uint(0)
	if w.ask.Exclusive {
		flags = unix.RENAME_NOREPLACE
	}
	err = unix.Renameat2(fd(source), name, fd(target), base, flags)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := w.copy(from, to); err != nil {
		return err
	}
	return unix.Unlinkat(fd(source), name, 0)
}

// copy copies a file or link between file systems.
func (w *worker) copy(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	if isLink(st.Mode) {
		buf := make([]byte, filewire.MaxPath)
		n, err := unix.Readlink(from, buf)
		if err != nil {
			return err
		}
		if !w.ask.Exclusive {
			_ = unix.Unlink(to)
		}
		return unix.Symlink(string(buf[:n]), to)
	}
	if isDir(st.Mode) {
		return unix.EXDEV
	}
	f, _, err := openToRead(from, false)
	if err != nil {
		return err
	}
	defer f.Close()
	return replace(to, st.Mode&0o777, w.ask.Exclusive, func(copied *os.File) error {
		if _, err := io.Copy(copied, f); err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, self(copied), []unix.Timespec{st.Atim, st.Mtim}, 0)
	})
}

// remover removes a tree. It uses descriptors and never follows a link. Even if a program moves or replaces files
// meanwhile, it removes only entries of directories that it opened inside the tree.
type remover struct {
	top  int // the tree's directory
	left int // steps
	next int // number of the next directory that is moved up
}

func (w *worker) remove(path string) error {
	dir, base, err := openParent(path, false)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = unlink(fd(dir), base)
	if !w.ask.Recursive || !isFull(err) {
		return err
	}
	top, err := open(fd(dir), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer top.Close()
	r := &remover{top: fd(top), left: w.ask.Limit}
	if err := r.empty(top, 1); err != nil {
		return err
	}
	return unlink(fd(dir), base)
}

// isFull reports whether an error means that a directory isn't empty.
func isFull(err error) bool { return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) }

// unlink removes a file, link or empty directory.
func unlink(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EISDIR || err == unix.EPERM {
		if below := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); below != unix.ENOTDIR {
			return below
		}
	}
	return err
}

// empty removes the entries of a directory. It reads the directory again until it finds nothing new: a removal moves
// the other entries, and a program may add more. Each counts as a step.
func (r *remover) empty(dir *os.File, depth int) error {
	for {
		names, err := dir.Readdirnames(256)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.removeOne(dir, name, depth); err != nil {
				return err
			}
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

func (r *remover) removeOne(dir *os.File, name string, depth int) error {
	if r.left--; r.left < 0 {
		return errLimited
	}
	err := unlink(fd(dir), name)
	switch {
	case !isFull(err):
		return below(name, err)
	case depth >= maxDepth:
		return below(name, r.moveUp(fd(dir), name))
	}
	sub, err := open(fd(dir), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return below(name, err)
	}
	defer sub.Close()
	if err := r.empty(sub, depth+1); err != nil {
		return below(name, err)
	}
	err = unlink(fd(dir), name)
	if isFull(err) { // a program has added an entry: the next round removes it
		return nil
	}
	return below(name, err)
}

// below prepends a name to the path of an error. It ignores missing files: they need no removal.
func below(name string, err error) error {
	var inner *fs.PathError
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.As(err, &inner) && inner.Path != "":
		return at(name+"/"+inner.Path, inner.Err)
	}
	return at(name, err)
}

// moveUp moves a directory to the top of the tree, so that deep trees don't need more descriptors. The next round finds
// it there.
func (r *remover) moveUp(dir int, name string) error {
	for range 100 {
		r.next++
		to := filewire.TempPrefix + "removed-" + strconv.Itoa(r.next)
		err := unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
		if err != unix.EEXIST {
			return err
		}
	}
	return unix.EEXIST
}
