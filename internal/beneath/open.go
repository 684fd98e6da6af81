package beneath

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// Handle is something open below a tree.
type Handle struct {
	*os.File
	Stat unix.Stat_t // at the time of opening
	Path string      // the path with links resolved; slash-separated, "" for the top
}

// Open opens the regular file at rel for reading. It follows links that stay inside. For a
// directory it returns [ErrIsDir], for anything else [ErrNotRegular]. It never blocks.
func (t *Tree) Open(rel string) (*Handle, error) {
	h, err := t.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	if err := Regular(&h.Stat); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// OpenDir opens the directory at rel for listing. It follows links that stay inside.
func (t *Tree) OpenDir(rel string) (*Handle, error) {
	return t.open(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
}

// Look opens rel as a place only ([sys.Place]), whatever its type and mode, and follows links that
// stay inside. The handle has a Stat and can serve as a directory to work in.
func (t *Tree) Look(rel string) (*Handle, error) { return t.open(rel, sys.Place) }

func (t *Tree) open(rel string, flags int) (*Handle, error) {
	for range maxTries {
		fd, path, err := t.openOnce(rel, flags)
		if err == nil {
			return t.handle(fd, path)
		}
		if !errors.Is(err, errSwapped) {
			return nil, err
		}
	}
	return nil, unix.ELOOP
}

// errSwapped means that a link appeared after the resolution had seen none.
var errSwapped = errors.New("a link was swapped in")

// openOnce opens a path without links directly, and otherwise resolves them.
func (t *Tree) openOnce(rel string, flags int) (fd int, path string, err error) {
	if fd, err = t.openNoLink(rel, flags); linkless(err) {
		return fd, rel, err
	}
	path, missing, err := t.resolve(rel)
	if err != nil {
		return -1, "", err
	}
	if len(missing) > 0 {
		return -1, "", unix.ENOENT
	}
	fd, err = t.openNoLink(path, flags)
	if errors.Is(err, unix.ELOOP) {
		err = errSwapped
	}
	return fd, path, err
}

// linkless reports whether err can't be caused by a link on the way or by a path like a/../b, which
// [openStepwise] refuses. With O_DIRECTORY the kernel returns ENOTDIR for a link at the end.
func linkless(err error) bool {
	return !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, fs.ErrInvalid)
}

func (t *Tree) handle(fd int, path string) (*Handle, error) {
	h := &Handle{Path: path}
	if err := unix.Fstat(fd, &h.Stat); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if uint64(h.Stat.Dev) != t.dev {
		_ = unix.Close(fd)
		return nil, ErrEscape
	}
	h.File = os.NewFile(uintptr(fd), path)
	return h, nil
}

// Lookup stats rel. It doesn't follow a link at the end, and follows others as long as they stay
// inside.
func (t *Tree) Lookup(rel string) (unix.Stat_t, error) {
	var st unix.Stat_t
	p, err := t.Parent(rel)
	if err != nil {
		return st, err
	}
	defer p.Close()
	err = p.Lstat(&st)
	return st, err
}

// Regular returns nil for a regular file, and otherwise an error that describes the entry.
func Regular(st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return ErrIsDir
	}
	return ErrNotRegular
}

// Mode returns st's type and permissions as an fs.FileMode, without set-id and sticky bits.
func Mode(st *unix.Stat_t) fs.FileMode {
	mode := fs.FileMode(st.Mode & 0o777)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return mode
	case unix.S_IFDIR:
		return mode | fs.ModeDir
	case unix.S_IFLNK:
		return mode | fs.ModeSymlink
	case unix.S_IFIFO:
		return mode | fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return mode | fs.ModeSocket
	case unix.S_IFCHR:
		return mode | fs.ModeDevice | fs.ModeCharDevice
	}
	return mode | fs.ModeDevice
}
