package main

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
	"syscall"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/holes"
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// pack writes the host's file or directory as a tar whose top is name, and returns the entries that
// it skipped. - is stdin, which is read to its end first: a tar states sizes in advance.
func (a *app) pack(ctx context.Context, w io.Writer, from, name string) (skipped []vfs.Skipped, err error) {
	tw := tar.NewWriter(w)
	if from == "-" {
		if err := a.packStdin(ctx, tw, name); err != nil {
			return nil, err
		}
		return nil, tw.Close()
	}
	err = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		if mode := d.Type(); !mode.IsDir() && !mode.IsRegular() && mode&fs.ModeSymlink == 0 {
			skipped = append(skipped, vfs.Skipped{Name: streams.Printable(p), Reason: "is a FIFO, a socket or a device"})
			return nil
		}
		return packEntry(tw, p, path.Join(name, filepath.ToSlash(rel)), d)
	})
	if err != nil { // without its end, the reader knows that the tar is incomplete
		return skipped, err
	}
	return skipped, tw.Close()
}

func (a *app) packStdin(ctx context.Context, tw *tar.Writer, name string) error {
	spool, err := os.CreateTemp("", "wisbox-cp-*")
	if err != nil {
		return err
	}
	defer spool.Close()
	_ = os.Remove(spool.Name())
	size, err := io.Copy(spool, a.stdin(ctx))
	if err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}); err != nil {
		return err
	}
	_, err = io.Copy(tw, spool)
	return err
}

func packEntry(tw *tar.Writer, hostPath, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(hostPath); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name = name
	header.Uname, header.Gname = "", ""
	if !info.Mode().IsRegular() {
		return tw.WriteHeader(header)
	}
	f, err := os.Open(hostPath)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	if _, err = io.CopyN(tw, f, header.Size); errors.Is(err, io.EOF) {
		return tool.Errorf(tool.Conflict, "%s on the host has become shorter than its %d bytes; copy it when nothing writes to it", hostPath, header.Size)
	}
	return err
}

// unpackFile writes the only file of a session's tar to the host, or to stdout.
func (a *app) unpackFile(r io.Reader, to string) error {
	tr := tar.NewReader(r)
	header, err := tr.Next()
	if err != nil {
		return err
	}
	if to == "-" {
		_, err := io.Copy(a.out, tr)
		return err
	}
	return writeTo(to, header, tr)
}

// writeTo writes a file to a path that a person named, which may be a link or a device.
func writeTo(to string, header *tar.Header, content io.Reader) error {
	err := func() error {
		if info, err := os.Lstat(to); err == nil && !info.Mode().IsRegular() {
			f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fs.FileMode(header.Mode).Perm()) // through a link that leads nowhere yet
			if err != nil {
				return err
			}
			_, err = io.Copy(f, content)
			return errors.Join(err, f.Close())
		}
		dir, name := filepath.Split(to)
		root, err := os.OpenRoot(cmp.Or(dir, "."))
		if err != nil {
			return err
		}
		defer root.Close()
		return writeWhole(root, name, header, content)
	}()
	if err != nil {
		return fileError(to, err)
	}
	return nil
}

// unpackDir writes a session's tar below a directory of the host and nowhere else: every name goes
// through an os.Root, and links are created last. Without vcs, it leaves out the files of version control systems,
// whatever the tar has: another machine's answer isn't trusted.
func unpackDir(r io.Reader, to string, vcs bool) error {
	dir, err := newWholeDir(to)
	if err != nil {
		return hostError(err)
	}
	defer dir.close()
	root := dir.Root
	var links []*tar.Header
	var left error
	known := map[string]bool{}
	for tr := tar.NewReader(r); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			skipped := makeLinks(root, links)
			return hostError(cmp.Or(dir.place(), skipped, left))
		}
		if err != nil {
			return err
		}
		isFile := header.Typeflag != tar.TypeDir
		switch {
		case vcs:
		case leftout.Why(header.Name) != "", isFile && leftout.File(header.Name) != "", header.Typeflag == tar.TypeSymlink && leftout.Why(header.Linkname) != "":
			continue
		case isFile && inRepositoryOf(root, header.Name, known):
			left = cmp.Or(left, errInRepository(header.Name))
			continue
		}
		if header.Typeflag == tar.TypeSymlink {
			links = append(links, header)
			continue
		}
		if err := unpackEntry(root, header, tr); err != nil {
			return dir.error(err)
		}
	}
}

// inRepositoryOf reports whether a directory above a name, the root too, has the file that makes it a repository. known
// has what was found before.
func inRepositoryOf(root *os.Root, name string, known map[string]bool) bool {
	for dir := path.Dir(path.Clean(name)); ; dir = path.Dir(dir) {
		is, ok := known[dir]
		if !ok {
			info, err := root.Lstat(filepath.FromSlash(path.Join(dir, leftout.RepositoryFile)))
			is = err == nil && !info.IsDir()
			known[dir] = is
		}
		if is || dir == "." || dir == "/" {
			return is
		}
	}
}

func errInRepository(name string) error {
	return tool.Errorf(tool.Permission, "%s %s; it was skipped, and the rest copied; --vcs copies it too", streams.Printable(name), leftout.InRepository)
}

func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name := filepath.FromSlash(path.Clean(header.Name))
	if header.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	return writeWhole(root, name, header, content)
}

// writeWhole writes a file beside its place and renames it when it is complete, so that an existing
// file stays until then. What isn't a plain file of one name, such as a link, a device or a hard
// link, is written in its place.
func writeWhole(root *os.Root, name string, header *tar.Header, content io.Reader) error {
	mode := fs.FileMode(header.Mode).Perm()
	was, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !was.Mode().IsRegular() || was.Sys().(*syscall.Stat_t).Nlink > 1:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	default:
		mode = was.Mode().Perm()
	}
	w, err := newWholeFile(root, name, mode)
	if err != nil {
		return err
	}
	defer w.discard()
	if err := fill(w.File, header, content); err != nil {
		return err
	}
	if was != nil {
		if err := w.Chmod(mode); err != nil {
			return err
		}
		_ = w.Chown(int(was.Sys().(*syscall.Stat_t).Uid), int(was.Sys().(*syscall.Stat_t).Gid)) // only root can
	}
	return w.place()
}

// sparseRecord is the record of a file with holes in a tar.
const sparseRecord = "GNU.sparse.realsize"

// fill writes a file's content, and its holes if it has any.
func fill(f *os.File, header *tar.Header, content io.Reader) error {
	if _, sparse := header.PAXRecords[sparseRecord]; !sparse {
		_, err := io.Copy(f, content)
		return err
	}
	w := holes.NewWriter(f)
	_, err := io.Copy(w, content)
	return errors.Join(err, w.Close())
}

// makeLinks creates links that stay below root. A session of this machine never has links that lead
// out, by themselves or through others, but another machine may send them.
func makeLinks(root *os.Root, links []*tar.Header) (err error) {
	var made []string
	for _, header := range links {
		name := filepath.FromSlash(path.Clean(header.Name))
		if failed := makeLink(root, name, header.Linkname); failed != nil {
			err = failed
			continue
		}
		made = append(made, name)
	}
	for _, name := range made { // now that all exist
		_, failed := root.Stat(name)
		if kernel := syscall.Errno(0); failed != nil && !errors.As(failed, &kernel) { // an error of root's own checks
			err = cmp.Or(root.Remove(name), errLinkOut(name))
		}
	}
	return err
}

func makeLink(root *os.Root, name, target string) error {
	if path.IsAbs(target) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) {
		return errLinkOut(name)
	}
	temp := tempBeside(name)
	if err := root.Symlink(target, temp); err != nil {
		return err
	}
	if err := root.Rename(temp, name); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return nil
}

func errLinkOut(name string) error {
	return tool.Errorf(tool.Unavailable, "%s is a link that leads out of the copy, and was skipped; the rest was copied", name)
}
