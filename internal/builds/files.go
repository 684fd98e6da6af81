package builds

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/wisbox/wisbox/tool"
)

const (
	maxEntries = 100_000
	maxPath    = 1024     // bytes
	maxNames   = 32 << 20 // bytes of all members' names, which are in memory
	modes      = 0o777
)

func isLocal(name string) bool { return filepath.IsLocal(name) && !strings.Contains(name, "\x00") }

// Clean copies an archive, which may be compressed with gzip, and refuses members that could reach
// beyond a build's context: members outside of it, below links, or other than files, directories
// and links. In the copy, names are clean and everything belongs to root. size is the size of the
// copy in bytes. most is the maximum size of the copy and of the unpacked content.
func Clean(ctx context.Context, r io.Reader, w io.Writer, most int64) (size int64, err error) {
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return 0, broken(err)
		}
		in = bufio.NewReader(unzipped)
	}
	copied, unpacked := budget{most: most}, budget{most: most}
	c := cleaner{seen: map[string]byte{}, out: tar.NewWriter(io.MultiWriter(&copied, w))}
	for from := tar.NewReader(io.TeeReader(in, &unpacked)); ; {
		hdr, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = c.add(hdr, from)
		}
		if err != nil {
			return copied.size, broken(err)
		}
	}
	err = c.out.Close()
	return copied.size, err
}

// budget bounds the number of bytes.
type budget struct{ size, most int64 }

func (b *budget) Write(data []byte) (int, error) {
	if int64(len(data)) > b.most-b.size {
		return 0, tool.Errorf(tool.TooLarge, "the files and their names have more than %d bytes, the rest of the build's maximum; copy less", b.most)
	}
	b.size += int64(len(data))
	return len(data), nil
}

// broken turns an unknown error into one that says that the archive can't be read.
func broken(err error) error {
	if known := (*tool.Error)(nil); errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return tool.Errorf(tool.NoSpace, "the files can't be stored; try again later").Because(err)
	}
	return tool.Errorf(tool.Invalid, "the files are not a complete tar archive; send them again").Because(err)
}

type cleaner struct {
	seen  map[string]byte // the type of each member
	named int             // bytes of all names
	out   *tar.Writer
}

func refused(name, why string) error {
	return tool.Errorf(tool.Invalid, "the archive's member %q %s", clipped(name), why)
}

func (c *cleaner) add(hdr *tar.Header, from io.Reader) error {
	name := path.Clean(hdr.Name)
	clean := &tar.Header{Typeflag: hdr.Typeflag, Name: name, Mode: hdr.Mode & modes, ModTime: hdr.ModTime.Truncate(time.Second), Format: tar.FormatPAX}
	switch {
	case hdr.Typeflag == tar.TypeXGlobalHeader, name == "." && hdr.Typeflag == tar.TypeDir:
		return nil
	case !isLocal(name) || len(name) > maxPath:
		return refused(hdr.Name, "lies outside of the context, or its path is too long; leave it out")
	case len(c.seen) >= maxEntries:
		return tool.Errorf(tool.TooLarge, "the archive has more than %d members; copy less", maxEntries)
	}
	known := c.seen[name] == tar.TypeDir
	if clean.Linkname = hdr.Linkname; hdr.Typeflag == tar.TypeLink {
		clean.Linkname = path.Clean(hdr.Linkname)
	}
	if err := c.put(clean); err != nil {
		return err
	}
	switch hdr.Typeflag {
	case tar.TypeReg:
		clean.Size = hdr.Size
	case tar.TypeDir:
		if known {
			return nil
		}
		clean.Name += "/"
	case tar.TypeSymlink:
		if !path.IsAbs(hdr.Linkname) && !isLocal(path.Join(path.Dir(name), hdr.Linkname)) || len(hdr.Linkname) > maxPath {
			return refused(hdr.Name, "is a link out of the context; leave it out, or have the client follow links")
		}
	case tar.TypeLink:
	default:
		return refused(hdr.Name, "is not a file, directory or link; leave it out")
	}
	if err := c.out.WriteHeader(clean); err != nil {
		return err
	}
	_, err := io.Copy(c.out, from)
	return err
}

// implied is the type of a directory that only the paths of its members name.
const implied = 'D'

func isDir(kind byte) bool { return kind == tar.TypeDir || kind == implied }

// put records a member. It refuses a path that exists already, a path below anything but a
// directory, and a hard link to anything but an existing file.
func (c *cleaner) put(hdr *tar.Header) error {
	name, kind := hdr.Name, hdr.Typeflag
	if there, ok := c.seen[name]; ok && (!isDir(there) || kind != tar.TypeDir) {
		return refused(name, "appears twice; leave one out")
	}
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		switch there, ok := c.seen[up]; {
		case !ok:
			c.seen[up] = implied
		case !isDir(there):
			return refused(name, "lies below a link or file; leave it out")
		}
	}
	if kind == tar.TypeLink && c.seen[hdr.Linkname] != tar.TypeReg {
		return refused(name, "is a hard link to a name that is not a file of the archive; leave it out")
	}
	if c.named += len(name); c.named > maxNames {
		return tool.Errorf(tool.TooLarge, "the names of the archive's members have more than %d bytes; copy less", maxNames)
	}
	c.seen[name] = kind
	return nil
}

// each calls do for every member of an archive that Clean wrote.
func each(file string, do func(hdr *tar.Header, r io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for from := tar.NewReader(bufio.NewReader(f)); ; {
		hdr, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			hdr.Name = path.Clean(hdr.Name)
			err = do(hdr, from)
		}
		if err != nil {
			return err
		}
	}
}

var errFound = errors.New("found")

// oneFile reports whether a COPY's source is a single file of its archive, or a link.
func oneFile(file, source string) bool {
	return errors.Is(each(file, func(hdr *tar.Header, _ io.Reader) error {
		if hdr.Name == source && hdr.Typeflag != tar.TypeDir {
			return errFound
		}
		return nil
	}), errFound)
}

// WriteContext writes the context of a recipe with the Containerfile text: the files of each COPY
// are in a directory named by the step's index.
func (r *Recipe) WriteContext(ctx context.Context, w io.Writer, text []byte) error {
	out := tar.NewWriter(w)
	if err := out.WriteHeader(&tar.Header{Name: "Containerfile", Mode: 0o600, Size: int64(len(text))}); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	for i, s := range r.Steps {
		if s.Kind != Copy {
			continue
		}
		if err := s.writeFiles(ctx, out, i); err != nil {
			return err
		}
	}
	return out.Close()
}

// writeFiles writes the files of a COPY where its instruction expects them: a file under its name,
// the content of a directory, and the files that a pattern matches, with the content of matched
// directories.
func (s *Step) writeFiles(ctx context.Context, out *tar.Writer, step int) error {
	dir := fmt.Sprint(step)
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
		return err
	}
	where, err := s.layout(dir)
	if err != nil {
		return err
	}
	placed := cleaner{seen: map[string]byte{}} // again, because the paths differ from those that Clean saw
	return each(s.Files, func(hdr *tar.Header, from io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		name, ok := where(hdr.Name)
		if ok && name == dir {
			return nil
		}
		if hdr.Typeflag == tar.TypeLink && ok {
			hdr.Linkname, ok = where(hdr.Linkname)
		}
		if !ok {
			return &StepError{Step: step + 1, Err: refused(hdr.Name, "is not a part of the COPY's source; leave it out")}
		}
		hdr.Name = name
		if err := placed.put(hdr); err != nil {
			return &StepError{Step: step + 1, Err: err}
		}
		if hdr.Typeflag == tar.TypeDir {
			hdr.Name += "/"
		}
		if err := out.WriteHeader(hdr); err != nil {
			return err
		}
		_, err := io.Copy(out, from)
		return err
	})
}

// layout returns a function that maps a member to its place in the context, below dir, and reports
// whether it belongs to the source.
func (s *Step) layout(dir string) (func(name string) (string, bool), error) {
	all := map[string]byte{}
	err := each(s.Files, func(hdr *tar.Header, _ io.Reader) error {
		all[hdr.Name] = hdr.Typeflag
		return nil
	})
	source := path.Clean(s.Args[0])
	if _, ok := all[source]; ok || source == "." { // everything else is below it
		if ok && all[source] != tar.TypeDir {
			source = path.Dir(source)
		}
		return func(name string) (string, bool) { return placedBelow(dir, source, name) }, err
	}
	return func(name string) (string, bool) {
		top := name
		for up := path.Dir(name); up != "."; up = path.Dir(up) {
			if _, ok := all[up]; ok {
				top = up
			}
		}
		if all[top] != tar.TypeDir {
			return placedBelow(dir, path.Dir(top), top)
		}
		return placedBelow(dir, top, name)
	}, err
}

// placedBelow returns the place in dir of a member that is the directory source or is in it.
func placedBelow(dir, source, name string) (string, bool) {
	if name == "." || strings.HasPrefix(source+"/", name+"/") { // the directory itself, or one above it
		return dir, true
	}
	if source != "." {
		var in bool
		if name, in = strings.CutPrefix(name, source+"/"); !in {
			return "", false
		}
	}
	return path.Join(dir, name), filepath.IsLocal(name)
}
