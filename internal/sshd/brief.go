package sshd

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/pkg/sftp"

	"github.com/wisbox/wisbox/sandbox"
)

// brief bounds the time of a file system's operations, except for copying a file's bytes: each
// operation makes all others of its channel wait.
type brief struct {
	sandbox.FileSystem
	time time.Duration
}

func (b brief) within(ctx context.Context, do func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, b.time)
	defer cancel()
	return b.late(ctx, short, do(short))
}

func (b brief) late(ctx, short context.Context, err error) error {
	if _, own := errors.AsType[*refusal](err); err == nil || own || ctx.Err() != nil || short.Err() == nil {
		return err
	}
	return refuse(sftp.ErrSSHFxFailure, "the session was busy for %v, with another change or other files; try again", b.time)
}

func (b brief) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (info sandbox.FileInfo, err error) {
	err = b.within(ctx, func(ctx context.Context) (err error) {
		info, err = b.FileSystem.Stat(ctx, path, opts)
		return err
	})
	return info, err
}

func (b brief) List(ctx context.Context, path string, opts sandbox.ListOptions, each func(sandbox.FileInfo) error) error {
	return b.within(ctx, func(ctx context.Context) error { return b.FileSystem.List(ctx, path, opts, each) })
}

func (b brief) Move(ctx context.Context, from, to string, opts sandbox.MoveOptions) error {
	return b.within(ctx, func(ctx context.Context) error { return b.FileSystem.Move(ctx, from, to, opts) })
}

func (b brief) Remove(ctx context.Context, path string, opts sandbox.RemoveOptions) error {
	return b.within(ctx, func(ctx context.Context) error { return b.FileSystem.Remove(ctx, path, opts) })
}

func (b brief) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	return b.within(ctx, func(ctx context.Context) error { return b.FileSystem.Mkdir(ctx, path, opts) })
}

func (b brief) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return b.within(ctx, func(ctx context.Context) error { return b.FileSystem.Chmod(ctx, path, mode) })
}

// Open bounds the time until the file is open, but not the reads.
func (b brief) Open(ctx context.Context, path string, opts sandbox.OpenOptions) (sandbox.FileReader, error) {
	life, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(b.time, cancel)
	r, err := b.FileSystem.Open(life, path, opts)
	if !timer.Stop() && err == nil {
		err = errors.Join(life.Err(), r.Close())
	}
	if err != nil {
		err = b.late(ctx, life, err)
		cancel()
		return nil, err
	}
	return &briefReader{r, cancel}, nil
}

type briefReader struct {
	sandbox.FileReader
	cancel context.CancelFunc
}

func (r *briefReader) Close() error {
	defer r.cancel()
	return r.FileReader.Close()
}
