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

// outsideFile is the name that a Containerfile from elsewhere has in the context.
const outsideFile = ".wisbox-containerfile"

// buildContext is a directory as it goes to the builder.
type buildContext struct {
	root    *os.Root // nil: there is no directory
	entries []contextEntry
	bytes   int64
	most    int // entries that it may have

	file    string // the Containerfile's path in the tar
	content []byte
	outside bool // it is not one of the entries
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

// scan finds what the ignore file leaves. Nothing is read yet: what is too large is
// refused before the first byte goes.
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
			return nil // a socket or the like: no build needs it
		}
		if info.Mode().Type() == fs.ModeSymlink {
			if err := c.staysInside(name); err != nil {
				return err
			}
		}
		if info.Mode().IsRegular() {
			if c.bytes += info.Size(); c.bytes > maxBytes {
				return tool.Errorf(tool.TooLarge, "context: it holds more than %s; list what the build doesn't need in .containerignore, or raise --max-context",
					units.BytesSize(float64(maxBytes))).In("context")
			}
		}
		c.entries = append(c.entries, contextEntry{name, info})
		return nil
	})
}

// staysInside refuses a link that Podman would refuse too, without saying what to do.
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
		return tool.Errorf(tool.Conflict, "context: %s went while it was read; try again", name).Because(err)
	}
	return err
}

// ignored reads the ignore file: the one beside the Containerfile with its name in
// front, else the context's own, as Podman does.
func (c *buildContext) ignored(containerfile string) (*fileutils.PatternMatcher, error) {
	var data []byte
	var from string
	for _, from = range []string{containerfile + ".containerignore", containerfile + ".dockerignore", ".containerignore", ".dockerignore"} {
		if !filepath.IsLocal(from) {
			continue
		}
		f, err := c.root.Open(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(f, maxIgnoreFile))
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

// writeTo writes the tar. All belongs to root, as in every context that Podman sends.
func (c *buildContext) writeTo(ctx context.Context, w io.Writer) error {
	tw := tar.NewWriter(w)
	if c.outside {
		hdr := &tar.Header{Name: c.file, Mode: 0o644, Size: int64(len(c.content)), Format: tar.FormatPAX}
		if err := tw.WriteHeader(hdr); err != nil {
			return err
		}
		if _, err := tw.Write(c.content); err != nil {
			return err
		}
	}
	for _, e := range c.entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.writeEntry(tw, e); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (c *buildContext) writeEntry(tw *tar.Writer, e contextEntry) error {
	target, err := c.target(e)
	if err != nil {
		return err
	}
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
	return c.copyFile(tw, e)
}

// target is where a symbolic link points to; "" for anything else.
func (c *buildContext) target(e contextEntry) (string, error) {
	if e.info.Mode().Type() != fs.ModeSymlink {
		return "", nil
	}
	target, err := c.root.Readlink(e.name)
	return target, readError(e.name, err)
}

// copyFile copies exactly as many bytes as the scan has seen.
func (c *buildContext) copyFile(w io.Writer, e contextEntry) error {
	f, err := c.root.OpenFile(e.name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO that took its place doesn't hold us
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

// digest is a hash of all that a build sees, but for times.
func (c *buildContext) digest(ctx context.Context, args map[string]string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", c.content, mustJSON(args))
	for _, e := range c.entries {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		target, err := c.target(e)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %o %q %d\n", e.name, e.info.Mode(), target, e.info.Size())
		if e.info.Mode().IsRegular() {
			if err := c.copyFile(h, e); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
