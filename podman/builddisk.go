package podman

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

const (
	diskLook = 200 * time.Millisecond // between two looks at the disk while a build runs
	maxSpare = 2 << 30                // bytes that stay free for the host
)

// boundDisk ends a build's context when the free space of the store's file system has shrunk by most
// bytes, or is less than a twentieth of its size or 2 GiB, whichever is smaller. cause returns the
// reason, or nil.
func boundDisk(ctx context.Context, store string, most int64) (_ context.Context, cause func() error, stop func()) {
	first, _, err := space(store)
	if most <= 0 || store == "" || err != nil { // the store is on another machine
		return ctx, func() error { return nil }, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		look := time.NewTicker(diskLook)
		defer look.Stop()
		for {
			if err := checkSpace(store, first, most); err != nil {
				end(err)
			}
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	cause = func() error {
		known := (*Error)(nil)
		if errors.As(context.Cause(ctx), &known) {
			return known
		}
		return nil
	}
	return ctx, cause, func() { end(nil); <-watched }
}

func checkSpace(store string, first uint64, most int64) error {
	free, total, err := space(store)
	switch {
	case err != nil:
		return nil // what it meets then says so
	case free < min(total/20, maxSpare):
		return fail(sandbox.ErrUnavailable, unix.ENOSPC, "the file system of Podman's images has no room for the build; free some space there")
	case first > free && first-free > uint64(most):
		return fail(sandbox.ErrInvalid, nil, "Containerfile: the build takes more than %d MiB of disk; have its steps write less, or remove what they don't need", most>>20)
	}
	return nil
}

// space returns the space of a directory's file system, in bytes.
func space(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	err = unix.Statfs(dir, &st)
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), err
}
