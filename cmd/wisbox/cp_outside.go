package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// uploadOutside copies a file or directory of the host to a directory of the sandbox's system.
func (a *app) uploadOutside(ctx context.Context, s *wisbox.Session, from, to string) (*vfs.Transfer, error) {
	inside, done := s.Inside(), &vfs.Transfer{}
	at := path.Clean(to)
	if info, err := inside.Stat(ctx, at, sandbox.StatOptions{Follow: true}); strings.HasSuffix(to, "/") || err == nil && (info.Mode.IsDir() || info.RealMode.IsDir()) {
		if from == "-" {
			return nil, tool.Errorf(tool.Invalid, "the name of the copy is missing; write it as SESSION:%s", path.Join(at, "NAME")).In("destination")
		}
		abs, err := filepath.Abs(from)
		if err != nil {
			return nil, err
		}
		at = path.Join(at, filepath.Base(abs))
	}
	if from == "-" {
		done.Files++
		return done, inside.Write(ctx, at, a.stdin(ctx), sandbox.WriteOptions{Parents: true})
	}
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return hostError(err)
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return hostError(err)
		}
		to := path.Join(at, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			err := inside.Mkdir(ctx, to, sandbox.MkdirOptions{Parents: true, Mode: info.Mode().Perm() | 0o700})
			if is, _ := inside.Stat(ctx, to, sandbox.StatOptions{Follow: true}); err != nil && !is.Mode.IsDir() && !is.RealMode.IsDir() {
				return err
			}
			done.Directories++
			return nil
		case d.Type().IsRegular():
			f, err := os.Open(p)
			if err != nil {
				return hostError(err)
			}
			defer f.Close()
			if err := inside.Write(ctx, to, f, sandbox.WriteOptions{Parents: true, Mode: info.Mode().Perm()}); err != nil {
				return err
			}
			done.Files++
			done.Bytes += info.Size()
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			done.Incomplete++
			done.Skipped = append(done.Skipped, vfs.Skipped{Name: streams.Printable(p), Reason: "is a link, which can be copied only into the workspace"})
			return nil
		}
		done.Skipped = append(done.Skipped, vfs.Skipped{Name: streams.Printable(p), Reason: "is a FIFO, a socket or a device"})
		return nil
	})
	if err != nil && done.Files > 0 {
		e := *tool.AsError(err)
		e.Message += fmt.Sprintf("; what was copied before that stays (files: %d)", done.Files)
		err = &e
	}
	return done, err
}

// downloadOutside copies a file or directory of the sandbox's system to the host. As with the
// workspace, nothing is written elsewhere, links are left out, and so is what programs of the host obey, unless vcs includes it.
func (a *app) downloadOutside(ctx context.Context, s *wisbox.Session, from, to string, vcs bool) (*vfs.Transfer, error) {
	inside, done := s.Inside(), &vfs.Transfer{}
	from = path.Clean(from)
	if why := leftout.Why(from); why != "" && !vcs {
		return nil, leftOutError(from, why)
	}
	info, err := inside.Stat(ctx, from, sandbox.StatOptions{Follow: true})
	if err != nil {
		return nil, tool.AsError(err).In("source")
	}
	isDir := info.Mode.IsDir() || info.RealMode.IsDir()
	if to == "-" {
		if isDir {
			return nil, tool.Errorf(tool.IsDir, "only a file can be copied to stdout").In("source")
		}
		return done, copyInside(ctx, inside, from, func(_ sandbox.FileInfo, r io.Reader) error {
			_, err := io.Copy(a.out, r)
			return err
		})
	}
	if st, err := os.Stat(to); err == nil && st.IsDir() || strings.HasSuffix(to, "/") {
		to = filepath.Join(to, path.Base(from))
	}
	if !isDir {
		return done, copyInside(ctx, inside, from, func(i sandbox.FileInfo, r io.Reader) error {
			done.Files, done.Bytes = 1, i.Size
			return writeTo(to, headerOf(i), r)
		})
	}
	dir, err := newWholeDir(to)
	if err != nil {
		return nil, hostError(err)
	}
	defer dir.close()
	root := dir.Root
	known := map[string]bool{}
	const levels = 512
	err = inside.List(ctx, from, sandbox.ListOptions{Depth: levels}, func(i sandbox.FileInfo) error {
		name, why := filepath.FromSlash(path.Clean(i.Path)), ""
		if !vcs {
			why = leftOutOf(root, i, known)
		}
		switch {
		case !filepath.IsLocal(name):
			return tool.Errorf(tool.Unavailable, "the sandbox names a file outside of the directory; nothing more was copied")
		case why != "":
			skip(done, i.Path, why)
			return nil
		case i.Mode.IsDir():
			done.Directories++
			return dir.error(root.MkdirAll(name, dirMode))
		case !i.Mode.IsRegular():
			skip(done, i.Path, "is a link, a FIFO, a socket or a device")
			return nil
		}
		err := copyInside(ctx, inside, path.Join(from, i.Path), func(i sandbox.FileInfo, r io.Reader) error {
			done.Files++
			done.Bytes += i.Size
			return dir.error(writeWhole(root, name, headerOf(i), r))
		})
		if kind := tool.KindOf(err); kind == tool.NotFound || kind == tool.Permission || kind == tool.NotRegular {
			done.Incomplete++
			skip(done, i.Path, "can't be read")
			return nil
		}
		return err
	})
	if err == nil {
		err = hostError(dir.place())
	}
	return done, err
}

// maxSkipped is the maximum of entries that are listed: a program can make any number.
const maxSkipped = 1_000

// skip notes an entry of the sandbox that isn't copied.
func skip(done *vfs.Transfer, name, reason string) {
	if len(done.Skipped) == maxSkipped {
		done.More++
		return
	}
	done.Skipped = append(done.Skipped, vfs.Skipped{Name: streams.Printable(name), Reason: reason})
}

// headerOf describes a file of the sandbox for a copy that has holes where it reads zeros: the holes of a file in /tmp
// take nothing there, and could fill the host's disk.
func headerOf(i sandbox.FileInfo) *tar.Header {
	return &tar.Header{Mode: int64(i.Mode.Perm()), PAXRecords: map[string]string{sparseRecord: ""}}
}

// leftOutOf returns the reason why an entry of the sandbox doesn't come to a directory of the host, or "".
func leftOutOf(root *os.Root, i sandbox.FileInfo, known map[string]bool) string {
	if i.Mode.IsDir() {
		return leftout.Why(i.Path)
	}
	if why := leftout.File(i.Path); why != "" {
		return why
	}
	if inRepositoryOf(root, i.Path, known) {
		return leftout.InRepository
	}
	return ""
}

func copyInside(ctx context.Context, inside sandbox.FileSystem, name string, write func(sandbox.FileInfo, io.Reader) error) error {
	r, err := inside.Open(ctx, name, sandbox.OpenOptions{})
	if err != nil {
		return err
	}
	return errors.Join(write(r.Info(), r), r.Close())
}
