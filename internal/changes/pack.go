package changes

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// A packed set is a tar of the differences: each file and link in both states.
const (
	packedOld = "old/"
	packedNew = "new/"
)

// Left counts changes that a set leaves out, as in [Diff].
type Left struct {
	Git        int64 `json:"git,omitempty"`
	Byproducts int64 `json:"byproducts,omitempty"`
	Ignored    int64 `json:"ignored,omitempty"`
}

// Left returns the changes that the set leaves out.
func (s *Set) Left() Left { return Left(s.diff.Hidden) }

// LeaveOut adds changes that were left out before the set was packed.
func (s *Set) LeaveOut(l Left) {
	s.diff.Git += l.Git
	s.diff.Byproducts += l.Byproducts
	s.diff.Ignored += l.Ignored
}

// Pack writes the set for another machine, which reads it with [Unpack].
func (s *Set) Pack(b *budget.Budget, w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	archive := tar.NewWriter(out)
	for _, side := range []struct {
		prefix string
		entry  func(pair) *snapshot.Entry
	}{
		{packedOld, func(p pair) *snapshot.Entry { return p.Old }},
		{packedNew, func(p pair) *snapshot.Entry { return p.New }},
	} {
		for _, p := range s.pairs {
			if err := s.packOne(b, archive, side.prefix+p.Path, side.entry(p)); err != nil {
				return err
			}
		}
	}
	return errors.Join(archive.Close(), out.Flush())
}

func (s *Set) packOne(b *budget.Budget, archive *tar.Writer, name string, e *snapshot.Entry) error {
	if e == nil {
		return nil
	}
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: e.Size, Mode: 0o644, Format: tar.FormatPAX}
	switch {
	case e.Link:
		h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.Target, 0
	case e.Exec:
		h.Mode = 0o755
	}
	if err := archive.WriteHeader(h); err != nil || e.Link {
		return err
	}
	return copyContent(b.Context(), b, s.between, e, archive)
}

// Unpacked is a comparison from another machine, in a local directory.
type Unpacked struct {
	*snapshot.Between
	store *snapshot.Store
	roots []*os.Root
}

// Close closes the snapshots. The caller removes the directory.
func (u *Unpacked) Close() {
	if u.Between != nil {
		u.Between.Close()
	}
	if u.store != nil {
		_ = u.store.Close()
	}
	for _, r := range u.roots {
		_ = r.Close()
	}
}

// Unpack reads the output of [Set.Pack] into an empty directory. It writes nothing outside of the
// directory, whatever the stream contains.
func Unpack(b *budget.Budget, stream io.Reader, dir *os.Root) (_ *Unpacked, err error) {
	u := &Unpacked{}
	defer func() {
		if err != nil {
			u.Close()
		}
	}()
	byName := map[string]*os.Root{}
	for _, name := range []string{"old", "new", "store", "tmp"} {
		if err := dir.Mkdir(name, 0o700); err != nil {
			return nil, err
		}
		root, err := dir.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		u.roots, byName[name] = append(u.roots, root), root
	}
	if err := unpackAll(b, tar.NewReader(stream), byName); err != nil {
		return nil, err
	}
	var ids [2]string
	for i, side := range []string{"old", "new"} {
		if u.store != nil {
			_ = u.store.Close()
		}
		u.store, err = snapshot.New(&snapshot.Options{Workspace: byName[side], Tmp: byName["tmp"], Store: byName["store"]})
		if err != nil {
			return nil, err
		}
		info, err := u.store.Create(b.Context(), &snapshot.CreateOptions{Label: side})
		if err != nil {
			return nil, err
		}
		ids[i] = info.ID
	}
	u.Between, err = u.store.Between(b.Context(), ids[0], ids[1])
	return u, err
}

// Bounds that every workspace keeps: the entries of a snapshot, and the longest path that the
// kernel takes in one call.
const (
	maxPacked = 2_000_000 // of both states
	maxPath   = 4096      // bytes
)

func unpackAll(b *budget.Budget, archive *tar.Reader, sides map[string]*os.Root) error {
	for n := 0; ; n++ {
		if err := b.Check(); err != nil {
			return err
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errPacked(err)
		}
		side, name, ok := strings.Cut(h.Name, "/")
		if n >= maxPacked || len(h.Name) > maxPath+len(packedOld) || !ok || side != "old" && side != "new" || name == "" || path.Clean("/"+name) != "/"+name {
			return errPacked(nil)
		}
		if err := unpackOne(b, archive, h, sides[side], name); err != nil {
			return err
		}
	}
}

func errPacked(err error) error {
	return tool.Errorf(tool.Unavailable, "the changes that the other machine sent can't be read; nothing was written").Because(err)
}

func unpackOne(b *budget.Budget, archive io.Reader, h *tar.Header, root *os.Root, name string) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return errPacked(err)
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		if err := root.Symlink(h.Linkname, name); err != nil {
			return errPacked(err)
		}
		return nil
	case tar.TypeReg:
	default:
		return errPacked(nil)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|os.FileMode(h.Mode&0o100))
	if folds && errors.Is(err, fs.ErrExist) {
		return tool.Errorf(tool.Conflict, "the session changed two files whose names are one to the file system of TMPDIR, one is %q; nothing was written; set TMPDIR to a directory of a case-sensitive volume, or take files with wisbox cp", name)
	}
	if err != nil {
		return errPacked(err)
	}
	_, err = io.Copy(charged{f, b}, archive)
	return errors.Join(err, f.Close())
}
