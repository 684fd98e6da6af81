package beneath

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Handle is something open below a tree.
type Handle struct {
	*os.File
	Stat unix.Stat_t // as it was when it was opened
	Path string      // where it lies, links resolved; slash-separated, "" for the top
}

// Open opens the regular file at rel for reading, over links that stay inside.
// A directory is [ErrIsDir], anything else [ErrNotRegular]; it never blocks.
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

// OpenDir opens the directory at rel for listing, over links that stay inside.
func (t *Tree) OpenDir(rel string) (*Handle, error) {
	return t.open(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
}

// Look opens rel as a place only (O_PATH), whatever it is and whatever its mode,
// over links that stay inside: good for its Stat and as a directory to work in.
func (t *Tree) Look(rel string) (*Handle, error) { return t.open(rel, unix.O_PATH) }

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

// errSwapped is met when a link appears where the resolution had seen none.
var errSwapped = errors.New("a link was swapped in")

// openOnce takes the short way for a path without links, else resolves them.
func (t *Tree) openOnce(rel string, flags int) (fd int, path string, err error) {
	if !t.plain {
		if fd, err = t.openNoLink(rel, flags); linkless(err) {
			return fd, rel, err
		}
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

// linkless says that err can't come from a link on the way. With O_DIRECTORY
// the kernel says ENOTDIR for a link at the end.
func linkless(err error) bool {
	return !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR)
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

// Lookup stats rel without following a link at its end; those of its parents
// are followed as long as they stay inside.
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

// Regular is nil for a regular file, else says what is wrong.
func Regular(st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return ErrIsDir
	}
	return ErrNotRegular
}

// Mode is st's type and permissions as package fs knows them, without set-id
// and sticky bits.
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
