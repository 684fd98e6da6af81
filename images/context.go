package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	units "github.com/docker/go-units"
	"go.podman.io/storage/pkg/fileutils"

	"github.com/wisbox/wisbox/tool"
)

// Bounds of a build's context.
const (
	DefaultMaxContext = 1 << 30 // bytes
	maxContextEntries = 200_000
	maxContainerfile  = 1 << 20 // bytes
	maxIgnoreFile     = 1 << 20 // bytes
)

// sentFile is the name in the context for every Containerfile, in addition to its own. Podman runs the C preprocessor,
// which can include any file of the host, on files whose names end in .in.
const sentFile = ".wisbox-containerfile"

// buildContext is a directory to send to the builder.
type buildContext struct {
	root    *os.Root // nil if there is no directory
	entries []contextEntry
	bytes   int64
	most    int // maximum number of entries

	file    string // the Containerfile's path, "" if it is elsewhere
	content []byte // of the Containerfile

	args     map[string]string // of the Containerfile
	approved string            // the digest that was approved, "" for none
}

type contextEntry struct {
	name string // with slashes
	info fs.FileInfo
}

func (c *buildContext) close() {
	if c.root != nil {
		c.root.Close()
	}
}

// scan lists the files that aren't ignored. It reads no content yet, so that a context that is too large is refused
// before the first byte is sent.
func (c *buildContext) scan(ctx context.Context, containerfile string, maxBytes int64) error {
	ignored, err := c.ignored(containerfile)
	if err != nil {
		return err
	}
	seen := 0
	return fs.WalkDir(c.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || name == "." {
			return readError(name, err)
		}
		if seen++; seen > c.most {
			return tool.Errorf(tool.TooLarge, "context: it has more than %d files and folders; choose a smaller folder, or list large ones in .containerignore", c.most).In("context")
		}
		if name == sentFile {
			return tool.Errorf(tool.Invalid, "context: %s is a name that wisbox uses; rename it", sentFile).In("context")
		}
		if skip, err := ignored.MatchesResult(filepath.FromSlash(name)); err == nil && skip.IsMatched() {
			if d.IsDir() && !ignored.Exclusions() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return readError(name, err)
		}
		if kind := info.Mode().Type(); kind&^(fs.ModeDir|fs.ModeSymlink) != 0 {
			return nil // e.g. a socket: no build needs it
		}
		if info.Mode().Type() == fs.ModeSymlink {
			if err := c.staysInside(name); err != nil {
				return err
			}
		}
		if info.Mode().IsRegular() {
			if c.bytes += info.Size(); c.bytes > maxBytes {
				return tool.Errorf(tool.TooLarge, "context: it has more than %s; list files that the build doesn't need in .containerignore, or raise --max-context",
					units.BytesSize(float64(maxBytes))).In("context")
			}
		}
		c.entries = append(c.entries, contextEntry{name, info})
		return nil
	})
}

// staysInside refuses a link that Podman would refuse too, but without advice.
func (c *buildContext) staysInside(name string) error {
	target, err := c.root.Readlink(name)
	if err != nil {
		return readError(name, err)
	}
	if !path.IsAbs(target) && !filepath.IsLocal(path.Join(path.Dir(name), target)) {
		return tool.Errorf(tool.Escape, "context: %s is a link out of the folder, which the build can't follow; list it in .containerignore", name).In("context")
	}
	return nil
}

func readError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return tool.Errorf(tool.Permission, "context: %s can't be read; list it in .containerignore, or change its mode", name).Because(err)
	case errors.Is(err, fs.ErrNotExist):
		return tool.Errorf(tool.Conflict, "context: %s was removed while it was read; try again", name).Because(err)
	}
	return err
}

// ignored reads the ignore file: the one beside the Containerfile whose name begins with the Containerfile's, or else
// the context's own, as Podman does.
func (c *buildContext) ignored(containerfile string) (*fileutils.PatternMatcher, error) {
	var data []byte
	var from string
	for _, from = range []string{containerfile + ".containerignore", containerfile + ".dockerignore", ".containerignore", ".dockerignore"} {
		if !filepath.IsLocal(from) {
			continue
		}
		f, err := c.root.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO would wait for its writer
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			data, err = readPatterns(f)
			f.Close()
		}
		if err != nil {
			return nil, tool.Errorf(tool.Invalid, "%s: it can't be read; make it a file of patterns", from).Because(err)
		}
		break
	}
	matcher, err := fileutils.NewPatternMatcher(ignorePatterns(data))
	if err != nil {
		return nil, tool.Errorf(tool.Invalid, "%s: a pattern is malformed; see containerignore(5)", from).Because(err)
	}
	return matcher, nil
}

func readPatterns(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxIgnoreFile))
}

func ignorePatterns(data []byte) []string {
	var patterns []string
	for lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		not := strings.HasPrefix(line, "!")
		line = strings.TrimPrefix(path.Clean(strings.TrimSpace(strings.TrimPrefix(line, "!"))), "/")
		if line == "" {
			continue
		}
		if not {
			line = "!" + line
		}
		patterns = append(patterns, line)
	}
	return patterns
}

// writeTo writes the tar. Everything belongs to root, as in every context that Podman sends. If the context has changed
// since its approval the tar gets no end, so nothing is built from it.
func (c *buildContext) writeTo(ctx context.Context, w io.Writer) error {
	tw := tar.NewWriter(w)
	hdr := &tar.Header{Name: sentFile, Mode: 0o644, Size: int64(len(c.content)), Format: tar.FormatPAX}
	if err := tw.WriteHeader(hdr); err != nil {
		return err
	}
	if _, err := tw.Write(c.content); err != nil {
		return err
	}
	seen, err := c.digest(ctx, func(e contextEntry, target string, h io.Writer) error { return c.writeEntry(tw, e, target, h) })
	if err != nil {
		return err
	}
	if c.approved != "" && seen != c.approved {
		return tool.Errorf(tool.Conflict, "context: a file changed after the build was approved; nothing was built; build again")
	}
	return tw.Close()
}

// writeEntry writes an entry to the tar, and a file's content also to h.
func (c *buildContext) writeEntry(tw *tar.Writer, e contextEntry, target string, h io.Writer) error {
	hdr, err := tar.FileInfoHeader(e.info, target)
	if err != nil {
		return err
	}
	hdr.Name, hdr.Format = e.name, tar.FormatPAX
	if e.info.IsDir() {
		hdr.Name += "/"
	}
	hdr.Uid, hdr.Gid, hdr.Uname, hdr.Gname = 0, 0, "", ""
	hdr.AccessTime, hdr.ChangeTime = time.Time{}, time.Time{}
	if err := tw.WriteHeader(hdr); err != nil || hdr.Typeflag != tar.TypeReg {
		return err
	}
	return c.copyFile(io.MultiWriter(tw, h), e)
}

// target returns a symbolic link's target, "" for anything else.
func (c *buildContext) target(e contextEntry) (string, error) {
	if e.info.Mode().Type() != fs.ModeSymlink {
		return "", nil
	}
	target, err := c.root.Readlink(e.name)
	return target, readError(e.name, err)
}

// copyFile copies exactly as many bytes as the scan found.
func (c *buildContext) copyFile(w io.Writer, e contextEntry) error {
	f, err := c.root.OpenFile(e.name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // so that a FIFO in its place doesn't block
	if err != nil {
		return readError(e.name, err)
	}
	defer f.Close()
	changed := tool.Errorf(tool.Conflict, "context: %s changed while it was read; try again", e.name)
	if now, err := f.Stat(); err != nil || !now.Mode().IsRegular() || now.Size() != e.info.Size() {
		return changed
	}
	_, err = io.CopyN(w, f, e.info.Size())
	if errors.Is(err, io.EOF) {
		return changed
	}
	return err
}

// digest returns a hash of the build's input except times. read reads an entry, and writes a regular file's content to
// h.
func (c *buildContext) digest(ctx context.Context, read func(e contextEntry, target string, h io.Writer) error) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", c.content, mustJSON(c.args))
	for _, e := range c.entries {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		target, err := c.target(e)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %o %q %d\n", e.name, e.info.Mode(), target, e.info.Size())
		if err := read(e, target, h); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// look reads an entry only for its digest.
func (c *buildContext) look(e contextEntry, _ string, h io.Writer) error {
	if !e.info.Mode().IsRegular() {
		return nil
	}
	return c.copyFile(h, e)
}
