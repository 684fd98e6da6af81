package vfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// FS returns the workspace as a read-only file system of package io/fs, with ReadDir, ReadFile,
// Stat, Lstat and ReadLink. It accepts the name of any existing file, even one that the tools
// refuse. It follows links that stay inside; a link that leaves can't be opened. An open file can
// still be read after a program has replaced it.
func (f *FS) FS() fs.FS { return goFS{f} }

type goFS struct{ f *FS }

var (
	_ fs.ReadDirFS  = goFS{}
	_ fs.ReadFileFS = goFS{}
	_ fs.StatFS     = goFS{}
	_ fs.ReadLinkFS = goFS{}
)

// at turns a name of package fs into a path below the tree.
func (g goFS) at(op, name string) (rel string, leave func(), err error) {
	if !fs.ValidPath(name) {
		return "", nil, pathError(op, name, fs.ErrInvalid)
	}
	leave, err = g.f.enter(context.Background())
	if err != nil {
		return "", nil, pathError(op, name, fs.ErrClosed)
	}
	if name == "." {
		name = ""
	}
	return name, leave, nil
}

// pathError returns an error that wraps the errors of package fs for errors.Is, and otherwise a
// *tool.Error.
func pathError(op, name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		err = fs.ErrNotExist
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		err = fs.ErrPermission
	case errors.Is(err, fs.ErrInvalid), errors.Is(err, fs.ErrClosed):
	default:
		err = beneath.Error(err, Any.escape(name))
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open opens a file or a directory.
func (g goFS) Open(name string) (fs.File, error) {
	rel, leave, err := g.at("open", name)
	if err != nil {
		return nil, err
	}
	defer leave()
	h, err := g.f.tree.Open(rel)
	if err == nil {
		return &goFile{Handle: h, info: infoOf(name, &h.Stat)}, nil
	}
	if !errors.Is(err, beneath.ErrIsDir) {
		return nil, pathError("open", name, err)
	}
	if h, err = g.f.tree.OpenDir(rel); err != nil {
		return nil, pathError("open", name, err)
	}
	return &goDir{goFile: goFile{Handle: h, info: infoOf(name, &h.Stat)}}, nil
}

// Stat describes the file that name leads to.
func (g goFS) Stat(name string) (fs.FileInfo, error) {
	rel, leave, err := g.at("stat", name)
	if err != nil {
		return nil, err
	}
	defer leave()
	h, err := g.f.tree.Look(rel)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	defer h.Close()
	return infoOf(name, &h.Stat), nil
}

// Lstat describes name itself.
func (g goFS) Lstat(name string) (fs.FileInfo, error) {
	if name == "." {
		return g.Stat(name)
	}
	rel, leave, err := g.at("lstat", name)
	if err != nil {
		return nil, err
	}
	defer leave()
	st, err := g.f.tree.Lookup(rel)
	if err != nil {
		return nil, pathError("lstat", name, err)
	}
	return infoOf(name, &st), nil
}

// ReadLink returns the text of a link.
func (g goFS) ReadLink(name string) (string, error) {
	rel, leave, err := g.at("readlink", name)
	if err != nil {
		return "", err
	}
	defer leave()
	if rel == "" {
		return "", pathError("readlink", name, fs.ErrInvalid)
	}
	p, err := g.f.tree.Parent(rel)
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	defer p.Close()
	text, err := p.Readlink()
	if errors.Is(err, unix.EINVAL) {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return text, nil
}

// ReadFile reads a file of at most the session's limit for whole files (64 MiB).
func (g goFS) ReadFile(name string) ([]byte, error) {
	rel, leave, err := g.at("read", name)
	if err != nil {
		return nil, err
	}
	defer leave()
	h, err := g.f.tree.Open(rel)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	defer h.Close()
	data, err := readAll(context.Background(), h, g.f.opts.Limits.WholeBytes)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return data, nil
}

// ReadDir lists a directory, sorted. A directory that needs too much memory is an error.
func (g goFS) ReadDir(name string) ([]fs.DirEntry, error) {
	file, err := g.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	dir, ok := file.(*goDir)
	if !ok {
		return nil, pathError("readdir", name, unix.ENOTDIR)
	}
	return dir.ReadDir(-1)
}

// goFile is an open file.
type goFile struct {
	*beneath.Handle
	info goInfo
}

func (f *goFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// goDir is an open directory.
type goDir struct {
	goFile
	names []dirName // that are read, but not returned yet
	ended bool
}

func (d *goDir) Read([]byte) (int, error) { return 0, pathError("read", d.info.name, unix.EISDIR) }

// ReadDir returns all entries, sorted, if the directory doesn't need too much memory, or the next n
// of any directory, unsorted.
func (d *goDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		err := d.rest()
		return d.take(len(d.names)), err
	}
	var out []fs.DirEntry
	for len(out) < n && (len(d.names) > 0 || !d.ended) {
		if len(d.names) > 0 {
			out = append(out, d.take(min(n-len(out), len(d.names)))...)
		} else if err := d.some(); err != nil {
			return out, err
		}
	}
	if len(out) == 0 {
		return nil, io.EOF
	}
	return out, nil
}

// take returns the entries of the next n names, without those that are gone.
func (d *goDir) take(n int) (out []fs.DirEntry) {
	for _, name := range d.names[:n] {
		var st unix.Stat_t
		if err := unix.Fstatat(int(d.Fd()), name.name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			out = append(out, fs.FileInfoToDirEntry(infoOf(name.name, &st)))
		}
	}
	d.names = d.names[n:]
	return out
}

// some reads the next names.
func (d *goDir) some() error {
	more, err := beneath.ReadSome(int(d.Fd()), func(e beneath.Entry) bool {
		d.names = append(d.names, dirName{strings.Clone(e.Name), e.Type})
		return true
	})
	d.ended = !more
	if err != nil {
		return pathError("readdir", d.info.name, err)
	}
	return nil
}

// rest reads all names that are left, and sorts them.
func (d *goDir) rest() error {
	names, more, err := listNames(context.Background(), d.Handle)
	if err == nil && more {
		err = tool.Errorf(tool.Limit, "the directory has too many entries to list; read it in parts, or remove some")
	}
	if err != nil {
		return pathError("readdir", d.info.name, err)
	}
	d.names, d.ended = append(d.names, names...), true
	slices.SortFunc(d.names, func(a, b dirName) int { return strings.Compare(a.name, b.name) })
	return nil
}

// goInfo implements [fs.FileInfo].
type goInfo struct {
	name string
	size int64
	mode fs.FileMode
	time time.Time
}

func infoOf(name string, st *unix.Stat_t) goInfo {
	return goInfo{name: path.Base(strings.TrimSuffix(name, "/")), size: st.Size, mode: beneath.Mode(st), time: modified(st)}
}

func (i goInfo) Name() string       { return i.name }
func (i goInfo) Size() int64        { return i.size }
func (i goInfo) Mode() fs.FileMode  { return i.mode }
func (i goInfo) ModTime() time.Time { return i.time }
func (i goInfo) IsDir() bool        { return i.mode.IsDir() }
func (i goInfo) Sys() any           { return nil }
