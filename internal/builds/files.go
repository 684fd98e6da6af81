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
	maxNames   = 32 << 20 // bytes of all members' names, which are kept in memory
	modes      = 0o777
)

func isLocal(name string) bool { return filepath.IsLocal(name) && !strings.Contains(name, "\x00") }

// Clean copies an archive, maybe compressed with gzip, without what could reach beyond a
// build's context: members outside of it, below links or of other kinds than files,
// directories and links are refused. Names are clean in the copy, all belongs to root. size
// is how many bytes the copy has; the maximum is most, also of what is unpacked.
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

// budget counts bytes, of which there are no more than most.
type budget struct{ size, most int64 }

func (b *budget) Write(data []byte) (int, error) {
	if int64(len(data)) > b.most-b.size {
		return 0, tool.Errorf(tool.TooLarge, "the files with their names hold more than %d bytes, which is what is left of a build's; copy less", b.most)
	}
	b.size += int64(len(data))
	return len(data), nil
}

// broken says that an archive can't be read, unless it is known what is wrong.
func broken(err error) error {
	if known := (*tool.Error)(nil); errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return tool.Errorf(tool.NoSpace, "the files can't be kept; try again later").Because(err)
	}
	return tool.Errorf(tool.Invalid, "the files are no tar archive, or it broke off; send them again").Because(err)
}

type cleaner struct {
	seen  map[string]byte // the kind of each member
	named int             // bytes of their names
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
		return refused(hdr.Name, "is neither file, directory nor link; leave it out")
	}
	if err := c.out.WriteHeader(clean); err != nil {
		return err
	}
	_, err := io.Copy(c.out, from)
	return err
}

// implied is the kind of a directory that only the path of a member names.
const implied = 'D'

func isDir(kind byte) bool { return kind == tar.TypeDir || kind == implied }

// put refuses what is there already, what lies below something else than a directory, and
// hard links to what is no file that is there. All else is there then.
func (c *cleaner) put(hdr *tar.Header) error {
	name, kind := hdr.Name, hdr.Typeflag
	if there, ok := c.seen[name]; ok && (!isDir(there) || kind != tar.TypeDir) {
		return refused(name, "is there twice; leave one out")
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
		return refused(name, "is a hard link to what is no file of the archive; leave it out")
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

// oneFile reports whether a COPY's source is one file of its archive, or link.
func oneFile(file, source string) bool {
	return errors.Is(each(file, func(hdr *tar.Header, _ io.Reader) error {
		if hdr.Name == source && hdr.Typeflag != tar.TypeDir {
			return errFound
		}
		return nil
	}), errFound)
}

// WriteContext writes the context of a recipe whose Containerfile is text: the files of
// each COPY in a directory of its own, which is named by the step's index.
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

// writeFiles writes the files of a COPY as its instruction expects them: a file by its
// name, of a directory what it holds, of a pattern the files, and what the directories
// hold, that it matched.
func (s *Step) writeFiles(ctx context.Context, out *tar.Writer, step int) error {
	dir := fmt.Sprint(step)
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
		return err
	}
	where, err := s.layout(dir)
	if err != nil {
		return err
	}
	placed := cleaner{seen: map[string]byte{}} // again: other paths than Clean saw
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
			return &StepError{Step: step + 1, Err: refused(hdr.Name, "is no part of the COPY's source; leave it out")}
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

// layout says where in the context, below dir, a member goes, if it belongs to the source.
func (s *Step) layout(dir string) (func(name string) (string, bool), error) {
	all := map[string]byte{}
	err := each(s.Files, func(hdr *tar.Header, _ io.Reader) error {
		all[hdr.Name] = hdr.Typeflag
		return nil
	})
	source := path.Clean(s.Args[0])
	if _, ok := all[source]; ok || source == "." { // all else lies below it
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

// placedBelow is where in dir a member goes that is the directory source, or lies in it.
func placedBelow(dir, source, name string) (string, bool) {
	if name == "." || strings.HasPrefix(source+"/", name+"/") { // it, or above it
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
