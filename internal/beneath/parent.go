package beneath

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/sandbox"
)

// Parent is a directory below a tree and the name of an entry in it, which need not exist. All
// operations on the entry use this name in this directory, so later changes to the path don't
// matter.
type Parent struct {
	dir  *os.File
	Name string
	Path string // of the entry, with the links of its parents resolved
}

// Parent finds the directory of rel, which must not be the top. It follows links on the way as long
// as they stay inside, and doesn't look at rel itself.
func (t *Tree) Parent(rel string) (*Parent, error) {
	dir, name := splitLast(rel)
	h, err := t.open(dir, sys.Place|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Parent{dir: h.File, Name: name, Path: join(h.Path, name)}, nil
}

// Target is like [Tree.Parent], but if rel is a link it returns the link's target: the entry to
// replace when a file is changed through a link.
func (t *Tree) Target(rel string) (*Parent, error) {
	path, missing, err := t.resolve(rel)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, unix.ENOENT
	}
	if path == "" {
		return nil, ErrIsDir
	}
	return t.Parent(path)
}

// Made are the directories that [Tree.MakeParent] created, the top one first. They are open until
// Undo or Close.
type Made []*Parent

// Undo removes the directories that are still empty.
func (m Made) Undo() {
	for _, p := range slices.Backward(m) {
		_ = unix.Unlinkat(int(p.dir.Fd()), p.Name, unix.AT_REMOVEDIR)
	}
	m.Close()
}

// Close closes the directories.
func (m Made) Close() {
	for _, p := range m {
		p.Close()
	}
}

// MakeParent is like [Tree.Parent] but creates missing directories, with mode 0755 and the owner of
// s.
func (t *Tree) MakeParent(rel string, s *Staging) (p *Parent, made Made, err error) {
	for range maxTries {
		if p, err = t.Parent(rel); err == nil || !errors.Is(err, unix.ENOENT) {
			break
		}
		more, failed := t.makeDirs(rel, s)
		made = append(made, more...)
		if failed != nil && !errors.Is(failed, unix.EEXIST) && !errors.Is(failed, unix.ENOENT) {
			err = failed
			break
		}
	}
	if err != nil {
		made.Undo()
		return nil, nil, err
	}
	return p, made, nil
}

func (t *Tree) makeDirs(rel string, s *Staging) (made Made, err error) {
	dir, _ := splitLast(rel)
	base, missing, err := t.resolve(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range missing {
		if name == ".." {
			return made, unix.ENOENT
		}
		base = join(base, name)
		p, err := t.Parent(base)
		if err != nil {
			return made, err
		}
		if err := s.Mkdir(p, 0o755); err != nil {
			p.Close()
			return made, err
		}
		made = append(made, p)
	}
	return made, nil
}

// Close closes the directory.
func (p *Parent) Close() { _ = p.dir.Close() }

// Dir returns the directory, open as a [sys.Place]. Close closes it.
func (p *Parent) Dir() *os.File { return p.dir }

// Lstat stats the entry itself.
func (p *Parent) Lstat(st *unix.Stat_t) error {
	return unix.Fstatat(int(p.dir.Fd()), p.Name, st, unix.AT_SYMLINK_NOFOLLOW)
}

// Open opens the entry for reading if it is a regular file; for a link it returns ELOOP.
func (p *Parent) Open() (*Handle, error) { return p.OpenTo(unix.O_RDONLY) }

// OpenTo is [Parent.Open] with flags that also allow to write.
func (p *Parent) OpenTo(flags int) (*Handle, error) {
	fd, err := OpenAt(int(p.dir.Fd()), p.Name, flags)
	if err != nil {
		return nil, err
	}
	h := &Handle{Path: p.Path, File: os.NewFile(uintptr(fd), p.Path)}
	if err := unix.Fstat(fd, &h.Stat); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := Regular(&h.Stat); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Symlink makes the entry a link with that text; for an existing entry it returns EEXIST.
func (p *Parent) Symlink(text string, owner *sandbox.Owner) error {
	if err := unix.Symlinkat(text, int(p.dir.Fd()), p.Name); err != nil {
		return err
	}
	if owner == nil {
		return nil
	}
	return unix.Fchownat(int(p.dir.Fd()), p.Name, owner.UID, owner.GID, unix.AT_SYMLINK_NOFOLLOW)
}

// OpenAt opens the entry name, one path element, of the directory dir. It doesn't block and follows
// no link (ELOOP, or ENOTDIR with O_DIRECTORY).
func OpenAt(dir int, name string, flags int) (int, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return -1, fs.ErrInvalid
	}
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	return retry.Interrupted(func() (int, error) { return unix.Openat(dir, name, flags, 0) })
}

// OpenBelow opens rel, a path of several elements below the open directory dir, like [OpenAt]: it
// doesn't block and follows no link.
func OpenBelow(dir int, rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	fd, err := openat2(dir, rel, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return openStepwise(dir, rel, flags)
	}
	return fd, err
}

func splitLast(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return "", rel
}

// Readlink returns the text of the entry if it is a link, and EINVAL otherwise.
func (p *Parent) Readlink() (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(p.dir.Fd()), p.Name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Link makes the entry another name of the regular file target.
func (p *Parent) Link(target *Parent) error {
	var st unix.Stat_t
	if err := target.Lstat(&st); err != nil {
		return err
	}
	if err := Regular(&st); err != nil {
		return err
	}
	return unix.Linkat(int(target.dir.Fd()), target.Name, int(p.dir.Fd()), p.Name, 0)
}

// Entry returns the entry name, one path element, of the open directory h. It needs no Close and is
// valid as long as h is open.
func (h *Handle) Entry(name string) *Parent {
	return &Parent{dir: h.File, Name: name, Path: join(h.Path, name)}
}
