package beneath

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
)

// Parent is a directory below a tree and the name of an entry in it, which may
// or may not exist. All that is done to the entry is done by this one name in
// this one directory, so nothing that happens to the path meanwhile matters.
type Parent struct {
	dir  *os.File
	Name string
	Path string // of the entry, the links of its parents resolved
}

// Parent finds the directory of rel, which must not be the top. Links on the
// way to it are followed as long as they stay inside; rel itself is not looked at.
func (t *Tree) Parent(rel string) (*Parent, error) {
	dir, name := splitLast(rel)
	h, err := t.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Parent{dir: h.File, Name: name, Path: join(h.Path, name)}, nil
}

// Target is [Tree.Parent] of the place where rel leads when it is a link: what
// is to be replaced to change a file through a link.
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

// Made are directories that [Tree.MakeParent] has made, the top one first. They
// are open until Undo or Close.
type Made []*Parent

// Undo removes those that are still empty.
func (m Made) Undo() {
	for _, p := range slices.Backward(m) {
		_ = unix.Unlinkat(int(p.dir.Fd()), p.Name, unix.AT_REMOVEDIR)
	}
	m.Close()
}

// Close lets go of them.
func (m Made) Close() {
	for _, p := range m {
		p.Close()
	}
}

// MakeParent is [Tree.Parent] that makes the directories that are missing, with
// mode 0755 and the owner of s.
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

// Close gives the directory's descriptor back.
func (p *Parent) Close() { _ = p.dir.Close() }

// Dir is the directory, open as a place (O_PATH). It is closed by Close.
func (p *Parent) Dir() *os.File { return p.dir }

// Lstat looks at the entry itself.
func (p *Parent) Lstat(st *unix.Stat_t) error {
	return unix.Fstatat(int(p.dir.Fd()), p.Name, st, unix.AT_SYMLINK_NOFOLLOW)
}

// Open opens the entry for reading if it is a regular file; a link is ELOOP.
func (p *Parent) Open() (*Handle, error) {
	fd, err := OpenAt(int(p.dir.Fd()), p.Name, unix.O_RDONLY)
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

// Symlink makes the entry a link with that text; an existing entry is EEXIST.
func (p *Parent) Symlink(text string, owner *sandbox.Owner) error {
	if err := unix.Symlinkat(text, int(p.dir.Fd()), p.Name); err != nil {
		return err
	}
	if owner == nil {
		return nil
	}
	return unix.Fchownat(int(p.dir.Fd()), p.Name, owner.UID, owner.GID, unix.AT_SYMLINK_NOFOLLOW)
}

// OpenAt opens the entry name, one path element, of the directory dir. It does
// not block and follows no link (ELOOP, or ENOTDIR with O_DIRECTORY).
func OpenAt(dir int, name string, flags int) (int, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return -1, fs.ErrInvalid
	}
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	return retry.Interrupted(func() (int, error) { return unix.Openat(dir, name, flags, 0) })
}

// OpenBelow opens rel, a path of several elements below the open directory dir,
// as [OpenAt] does for one: without blocking and without following any link.
func OpenBelow(dir int, rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	quiet := unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	if flags&unix.O_PATH != 0 {
		quiet = unix.O_NOFOLLOW // openat2 refuses what means nothing
	}
	fd, err := openat2(dir, rel, flags|quiet)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return openStepwise(dir, rel, flags)
	}
	return fd, err
}

func openStepwise(dir int, rel string, flags int) (int, error) {
	fd, err := unix.Openat(dir, ".", unix.O_PATH|unix.O_CLOEXEC, 0)
	for name, rest, more := strings.Cut(rel, "/"); err == nil; name, rest, more = strings.Cut(rest, "/") {
		at, want := fd, flags
		if more {
			want = unix.O_PATH | unix.O_DIRECTORY
		}
		if name == "." || rel == "" {
			fd, err = unix.Openat(at, ".", want|unix.O_CLOEXEC, 0)
		} else {
			fd, err = OpenAt(at, name, want)
		}
		_ = unix.Close(at)
		if !more {
			return fd, err
		}
	}
	return fd, err
}

func splitLast(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return "", rel
}

// Readlink is the text of the entry when it is a link, else EINVAL.
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

// Entry is the entry name, one path element, of the open directory h. It needs
// no Close of its own and is good as long as h is open.
func (h *Handle) Entry(name string) *Parent {
	return &Parent{dir: h.File, Name: name, Path: join(h.Path, name)}
}
