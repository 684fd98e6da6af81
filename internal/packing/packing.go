// Package packing sends mounts of this machine to a session on another machine, and keeps the
// record of what was sent.
package packing

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/scratch"
	"github.com/wisbox/wisbox/tool"
)

// Pack holds a copy of mounts, made by package hostmount, while it is being sent. The methods
// [Pack.Because] and [Pack.Close] accept nil, the pack of no mounts.
type Pack struct {
	Report *hostmount.Report
	Mounts []hostmount.Mount // with their places in the workspace
	dir    *scratch.Dir
	failed chan error // gets the stream's error once
	sent   *io.PipeReader
}

// Copy copies the mounts to a temporary directory of this machine. It returns nil without mounts.
// It sets the directories of opts itself.
func Copy(ctx context.Context, mounts []hostmount.Mount, opts hostmount.Options) (_ *Pack, err error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	p := &Pack{Mounts: slices.Clone(mounts), failed: make(chan error, 1)}
	if p.dir, err = scratch.New("wisbox-pack-"); err != nil {
		return nil, errNoRoom(err)
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if opts.Dest, err = p.makeDir("files"); err != nil {
		return nil, err
	}
	defer opts.Dest.Close()
	if opts.Staging, err = p.makeDir("staging"); err != nil {
		return nil, err
	}
	defer opts.Staging.Close()
	if p.Report, err = hostmount.Copy(ctx, mounts, &opts); err != nil {
		return nil, err
	}
	for i, done := range p.Report.Mounts {
		p.Mounts[i].MountPath = cmp.Or(done.MountPath, ".")
	}
	return p, nil
}

func (p *Pack) makeDir(name string) (*os.Root, error) {
	path := filepath.Join(p.dir.Path, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, errNoRoom(err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, errNoRoom(err)
	}
	return root, nil
}

func errNoRoom(err error) error {
	return tool.Errorf(tool.Unavailable, "there is no room to pack the mounts; set TMPDIR to a directory with room").Because(err)
}

// Stream returns the packed files as a tar stream. Call it once.
func (p *Pack) Stream(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	p.sent = r
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		out := bufio.NewWriterSize(w, 256<<10)
		archive := tar.NewWriter(out)
		root, err := os.OpenRoot(filepath.Join(p.dir.Path, "files"))
		if err == nil {
			err = errors.Join(archive.AddFS(root.FS()), archive.Close(), out.Flush(), root.Close())
		}
		p.failed <- err
		_ = w.CloseWithError(err)
	}()
	return r
}

// Because returns err, or the error of the stream if that caused it.
func (p *Pack) Because(err error) error {
	if p == nil || err == nil {
		return err
	}
	select {
	case failed := <-p.failed:
		if failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
			return tool.Errorf(tool.Unavailable, "the mounts can't be sent; try again").Because(errors.Join(failed, err))
		}
	default:
	}
	return err
}

// Close removes the copy.
func (p *Pack) Close() {
	if p == nil {
		return
	}
	if p.sent != nil {
		_ = p.sent.Close() // after a refusal, the rest of the stream is unread
	}
	_ = p.dir.Close()
}
