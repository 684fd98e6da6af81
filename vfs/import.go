package vfs

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/holes"
	"github.com/wisbox/wisbox/tool"
)

// Import unpacks a tar stream below the directory dest, which it creates if necessary. It imports
// files, directories, and links that stay in the workspace. It skips and reports devices, FIFOs,
// and names or links that leave the workspace. Imported files belong to the session and have no
// set-id bits. Import replaces existing files, each one as a whole; after an error, the earlier
// entries stay. It reads the stream as it arrives, in bounded memory.
func (f *FS) Import(ctx context.Context, stream io.Reader, dest string) (*Transfer, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	rel, err := Any.clean(dest)
	if err != nil {
		return nil, in(err, "dest")
	}
	if f.staging == nil {
		return nil, tool.Errorf(tool.Unsupported, "this workspace is read-only")
	}
	im := &importing{f: f, ctx: ctx, dest: rel, Transfer: &Transfer{}}
	if err := im.makeDir(rel, 0o755); err != nil {
		return nil, in(fail(err, rel), "dest")
	}
	return im.Transfer, im.run(tar.NewReader(&contextReader{ctx: ctx, r: stream}))
}

// contextReader ends a stream with its context, between two reads.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

type importing struct {
	*Transfer
	f    *FS
	ctx  context.Context
	dest string
}

func (im *importing) run(stream *tar.Reader) error {
	for {
		header, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return im.broken(err)
		}
		rel, ok := im.place(header.Name)
		if !ok {
			im.skip(header.Name, "is not a name below the destination")
			continue
		}
		if err := im.entry(rel, header, stream); err != nil {
			if im.ctx.Err() != nil || fatal(err) {
				return fail(err, rel)
			}
			if errors.Is(err, beneath.ErrEscape) {
				im.skip(header.Name, reasonOf(err))
			} else {
				im.lack(header.Name, reasonOf(err))
			}
		}
	}
}

func (im *importing) broken(err error) error {
	if ctxErr := im.ctx.Err(); ctxErr != nil {
		return tool.AsError(ctxErr)
	}
	if own := (*tool.Error)(nil); errors.As(err, &own) { // the stream's own, such as no room
		return own
	}
	return tool.Errorf(tool.Invalid, "the stream is not a tar archive, or is incomplete").Because(err)
}

// place returns the path for a name in an archive. The name isn't trusted: each element of it must
// be a plain one.
func (im *importing) place(name string) (string, bool) {
	if strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", false
	}
	rel := im.dest
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", false
		default:
			rel = join(rel, part)
		}
	}
	return rel, true
}

func (im *importing) entry(rel string, h *tar.Header, content io.Reader) error {
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := im.makeDir(rel, mode|0o700); err != nil {
			return err
		}
		im.Directories++
		return nil
	case tar.TypeReg, tar.TypeGNUSparse:
		if isSparse(h) { // a few bytes of it can stand for any number
			im.lack(h.Name, "is stored sparse; pack it without -S")
			return nil
		}
		return im.file(rel, mode, content)
	case tar.TypeSymlink:
		return im.symlink(rel, h.Linkname)
	case tar.TypeLink:
		return im.hardLink(rel, h.Linkname)
	case tar.TypeXGlobalHeader:
		return nil
	}
	im.skip(h.Name, "is a device, a FIFO or of an unknown type")
	return nil
}

func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// makeDir creates a directory and its parents. An existing one keeps its mode.
func (im *importing) makeDir(rel string, mode fs.FileMode) error {
	if rel == "" {
		return nil
	}
	return im.locked(rel, func(p *beneath.Parent) error {
		err := im.f.staging.Mkdir(p, mode)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		h, err := im.f.tree.OpenDir(rel)
		if err != nil {
			return err
		}
		return h.Close()
	})
}

// locked calls do for one entry under the write lock.
func (im *importing) locked(rel string, do func(*beneath.Parent) error) error {
	if rel == "" {
		return beneath.ErrIsDir
	}
	unlock, err := im.f.lock(im.ctx)
	if err != nil {
		return err
	}
	defer unlock()
	p, made, err := im.f.tree.MakeParent(rel, im.f.staging)
	if err != nil {
		return err
	}
	made.Close()
	defer p.Close()
	return do(p)
}

// file imports a file. It reads the content without the lock, since the stream may be slow.
func (im *importing) file(rel string, mode fs.FileMode, content io.Reader) error {
	temp, err := im.f.staging.CreateSlow(mode)
	if err != nil {
		return err
	}
	defer temp.Discard()
	sparse := holes.NewWriter(temp.File)
	if err := im.copy(sparse, content); err != nil {
		return err
	}
	if err := errors.Join(sparse.Close(), temp.Flush()); err != nil {
		return err
	}
	err = im.locked(rel, func(p *beneath.Parent) error { return im.put(temp, p) })
	if err != nil {
		return err
	}
	im.Files++
	im.Bytes += sparse.Data
	return nil
}

// copy copies the content of a file, with holes for zeros, which don't count.
func (im *importing) copy(to *holes.Writer, content io.Reader) error {
	const at = 1 << 20 // bytes between two looks at the limit
	for {
		n, err := io.CopyN(to, content, at)
		switch {
		case errors.Is(err, io.EOF):
			err = nil
		case err != nil:
			return readingFailed(im, err)
		}
		if most := im.f.opts.Limits.InBytes; im.Bytes+to.Data > most {
			return tool.Errorf(tool.Limit, "the archive has more than %d bytes; import it in parts", most)
		}
		if n < at {
			return err
		}
	}
}

// readingFailed distinguishes a bad stream from a full disk.
func readingFailed(im *importing, err error) error {
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return err
	}
	return im.broken(err)
}

// put renames a file into place. It may replace another file or a link, but not what the link
// leads to.
func (im *importing) put(temp *beneath.Temp, p *beneath.Parent) error {
	err := temp.Place(p)
	if errors.Is(err, unix.EEXIST) {
		err = temp.Swap(p, func(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT != unix.S_IFDIR })
	}
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(temp.Fd()), &st); err != nil {
		return err
	}
	im.f.versions.wrote(clientOf(im.ctx), p.Path, &st, false)
	return nil
}

func (im *importing) symlink(rel, text string) error {
	if _, ok := linkInside(rel, text); !ok || text == "" {
		return beneath.ErrEscape
	}
	err := im.locked(rel, func(p *beneath.Parent) error {
		return p.Symlink(text, im.f.staging.Owner())
	})
	if err == nil {
		im.Links++
	}
	return err
}

// hardLink adds a second name to a file that was imported or existed before.
func (im *importing) hardLink(rel, name string) error {
	from, ok := im.place(name)
	if !ok || from == "" {
		return beneath.ErrEscape
	}
	err := im.locked(rel, func(p *beneath.Parent) error {
		target, err := im.f.tree.Parent(from)
		if err != nil {
			return err
		}
		defer target.Close()
		return p.Link(target)
	})
	if err == nil {
		im.Files++
	}
	return err
}
