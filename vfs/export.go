package vfs

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/holes"
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/tool"
)

// ExportOptions are options of [FS.ExportWith]; nil means all defaults.
type ExportOptions struct {
	// Sparse keeps the holes of files, in the format of GNU tar (PAX, version 1.0), which other
	// programs read too. Without it, holes are written as zeros, and files with too many are skipped.
	Sparse bool
	// LeaveOut skips what should not come home with other files: the directories of version control
	// systems, since these run programs that the files in them name, links into them, and files named HEAD, which
	// make a git repository of their directory; and files with the name of wisbox's own directory for an apply.
	LeaveOut bool
}

// Export is [FS.ExportWith] with all defaults.
func (f *FS) Export(ctx context.Context, name string, w io.Writer) (*Transfer, error) {
	return f.ExportWith(ctx, name, w, nil)
}

// ExportWith writes a tar stream of path: for a directory, everything below it, with names relative to
// it; for a file, one entry. It writes only files, directories and links that stay below path, so
// that unpacking the stream writes nowhere else. Absolute links into the workspace become relative.
// It skips and reports everything else. A file that changes meanwhile keeps the size that it had
// when it was opened. Export takes no lock.
func (f *FS) ExportWith(ctx context.Context, name string, w io.Writer, opts *ExportOptions) (*Transfer, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	rel, err := Any.clean(name)
	if err != nil {
		return nil, in(err, "path")
	}
	b := budget.New(ctx, budget.Limits{Steps: budget.None, Time: budget.None, Out: budget.None})
	defer b.Close()
	ex := &exporting{f: f, ctx: ctx, b: b, out: w, tar: tar.NewWriter(w), Transfer: &Transfer{}}
	if opts != nil {
		ex.ExportOptions = *opts
	}
	if ex.LeaveOut && leftout.VersionControl(rel) {
		return ex.Transfer, tool.Errorf(tool.Permission, "%s %s; ask for it explicitly (wisbox cp --vcs)", Any.Display(rel), leftout.Why(rel)).In("path")
	}
	if err := ex.run(rel); err != nil {
		return ex.Transfer, in(ex.reason(err, rel), "path")
	}
	return ex.Transfer, ex.reason(ex.tar.Close(), rel)
}

type exporting struct {
	*Transfer
	ExportOptions
	f     *FS
	ctx   context.Context
	b     *budget.Budget // of the memory; the receiver bounds the output
	out   io.Writer
	tar   *tar.Writer
	base  string // the true path of the directory that is written
	holes int64  // bytes of files that are mostly holes
}

// errOutput reports that the receiver of the stream failed.
var errOutput = errors.New("write the archive")

func (ex *exporting) reason(err error, rel string) error {
	switch {
	case err == nil:
		return nil
	case ex.ctx.Err() != nil:
		return tool.AsError(ex.ctx.Err())
	case errors.Is(err, errOutput):
		return tool.Errorf(tool.Unavailable, "the archive's destination can't be written; check its disk").Because(err)
	}
	return fail(err, rel)
}

func (ex *exporting) run(rel string) error {
	dir, err := ex.f.tree.OpenDir(rel)
	if errors.Is(err, unix.ENOTDIR) {
		h, err := ex.f.tree.Open(rel)
		if err != nil {
			return err
		}
		defer h.Close()
		if ex.tooSparse(&h.Stat) {
			return tool.Errorf(tool.TooLarge, "%s is sparse and too large to go out: %d bytes, most of them holes; pack it with a program (tar -S) first", Any.Display(rel), h.Stat.Size)
		}
		return ex.file(path.Base(rel), h.File, &h.Stat)
	}
	if err != nil {
		return err
	}
	ex.base = dir.Path
	_ = dir.Close()
	return ex.below()
}

// below writes the directories of a list, the last found first, so that the depth of a tree costs
// no descriptors.
func (ex *exporting) below() error {
	for todo := []inDir{{}}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		ex.b.Release(next.size())
		at := join(next.dir, next.name)
		more, err := ex.directory(at)
		if err != nil {
			return err
		}
		for _, name := range slices.Backward(more) {
			below := inDir{at, name}
			if ex.LeaveOut {
				if why := leftout.Why(name); why != "" {
					ex.skip(join(at, name)+"/", why)
					continue
				}
			}
			if err := ex.b.Hold(below.size()); err != nil {
				return err
			}
			todo = append(todo, below)
		}
	}
	return nil
}

// inDir is a directory that waits. Directories of one parent share its path, which may be long.
type inDir struct{ dir, name string }

func (d inDir) size() int { return len(d.name) + int(unsafe.Sizeof(d)) }

func (ex *exporting) directory(at string) (below []string, err error) {
	dir, err := ex.f.tree.OpenDir(join(ex.base, at))
	if err != nil {
		if at == "" {
			return nil, err
		}
		ex.lack(at, reasonOf(err))
		return nil, nil
	}
	defer dir.Close()
	if at != "" {
		if err := ex.header(&tar.Header{Typeflag: tar.TypeDir, Name: at + "/"}, &dir.Stat); err != nil {
			return nil, err
		}
		ex.Directories++
	}
	names, cut, err := listNames(ex.ctx, dir)
	if cut && err == nil {
		ex.lack(at, "has too many entries; the rest is left out")
	}
	for i := 0; i < len(names) && err == nil; i++ {
		if names[i].kind == unix.DT_DIR {
			below = append(below, names[i].name)
			continue
		}
		err = ex.entry(dir, join(at, names[i].name), names[i])
	}
	return below, err
}

func (ex *exporting) entry(dir *beneath.Handle, name string, n dirName) error {
	if ex.ctx.Err() != nil {
		return ex.ctx.Err()
	}
	if why := leftout.File(n.name); ex.LeaveOut && why != "" {
		ex.skip(name, why)
		return nil
	}
	switch n.kind {
	case unix.DT_REG:
		return ex.regular(dir, name, n.name)
	case unix.DT_LNK:
		return ex.link(dir, name, n.name)
	}
	ex.skip(name, "is a FIFO, a socket or a device")
	return nil
}

func (ex *exporting) regular(dir *beneath.Handle, name, entry string) error {
	p := dir.Entry(entry)
	h, err := p.Open()
	if err != nil {
		ex.lack(name, reasonOf(err))
		return nil
	}
	defer h.Close()
	return ex.file(name, h.File, &h.Stat)
}

const (
	maxSparse = 64 << 20 // bytes of a file that is mostly holes
	maxHoles  = 1 << 30  // bytes of all such files
	mostHoles = 1 << 40  // bytes of all of them in a sparse stream, whose reader may write zeros
)

// tooSparse reports whether a file is mostly holes and too large, also together with others: a
// program can make terabytes of holes at no cost.
func (ex *exporting) tooSparse(st *unix.Stat_t) bool {
	if st.Size/8 <= st.Blocks*512 {
		return false
	}
	ex.holes += min(st.Size, 2*mostHoles)
	if ex.Sparse {
		return ex.holes > mostHoles
	}
	return st.Size > maxSparse || ex.holes > maxHoles
}

func (ex *exporting) file(name string, content *os.File, st *unix.Stat_t) error {
	if ex.tooSparse(st) {
		ex.lack(name, "is sparse and too large")
		return nil
	}
	if ex.Sparse && holes.Worth(st.Size, st.Blocks) {
		if done, err := ex.sparse(name, content, st); done || err != nil {
			return err
		}
	}
	if err := ex.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: st.Size}, st); err != nil {
		return err
	}
	body := io.MultiReader(&contextReader{ctx: ex.ctx, r: content}, zeros{})
	if _, err := io.CopyN(ex.tar, body, st.Size); err != nil {
		return errors.Join(errOutput, err)
	}
	ex.Files++
	ex.Bytes += st.Size
	return nil
}

// zeros pads a file that became shorter while it was read.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (ex *exporting) link(dir *beneath.Handle, name, entry string) error {
	p := dir.Entry(entry)
	text, err := p.Readlink()
	if err != nil {
		ex.skip(name, reasonOf(err))
		return nil
	}
	if why := leftout.Why(text); ex.LeaveOut && why != "" {
		ex.skip(name, "is a link to what "+why)
		return nil
	}
	text, ok := ex.inside(name, text)
	if !ok {
		ex.skip(name, "is a link that leaves what is exported")
		return nil
	}
	var st unix.Stat_t
	if err := p.Lstat(&st); err != nil {
		ex.skip(name, reasonOf(err))
		return nil
	}
	if err := ex.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: text}, &st); err != nil {
		return err
	}
	ex.Links++
	return nil
}

// inside returns the text of a link that leads below the exported directory, as a relative path.
func (ex *exporting) inside(name, text string) (string, bool) {
	from := join(ex.base, name)
	to, ok := linkInside(from, text)
	if !ok || ex.base != "" && to != ex.base && !hasDir(to, ex.base) {
		return "", false
	}
	rel, err := filepath.Rel(path.Dir("/"+from), "/"+to)
	return rel, err == nil
}

func hasDir(p, dir string) bool {
	return len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/'
}

func (ex *exporting) header(h *tar.Header, st *unix.Stat_t) error {
	h.Mode, h.ModTime, h.Format = int64(beneath.Mode(st)&fs.ModePerm), modified(st), cmp.Or(h.Format, tar.FormatPAX)
	if err := ex.tar.WriteHeader(h); err != nil {
		return errors.Join(errOutput, err)
	}
	return nil
}
