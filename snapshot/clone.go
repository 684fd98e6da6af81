package snapshot

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

// CloneTo restores a snapshot of this store in another workspace, which should be new. dst gets
// the snapshot as well, under the same ID. On the same file system, it shares the packs by hard
// links and, if the file system has reflinks, the blocks of files that have not changed since. A
// write in one workspace is never visible in the other.
func (s *Store) CloneTo(ctx context.Context, id string, dst *Store) (Restored, error) {
	r, err := s.shareWith(ctx, id, dst)
	if err != nil {
		return Restored{}, err
	}
	return dst.restoreFrom(ctx, r.ID, nil, &twin{store: s})
}

// ShareWith adds a snapshot of this store to another one, as CloneTo does, but leaves its
// workspace alone.
func (s *Store) ShareWith(ctx context.Context, id string, dst *Store) error {
	_, err := s.shareWith(ctx, id, dst)
	return err
}

func (s *Store) shareWith(ctx context.Context, id string, dst *Store) (*record, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := s.readRecord(id, "snapshot_id")
	if err != nil {
		return nil, err
	}
	free, err := dst.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	if err := dst.room(ctx); err != nil {
		return nil, tool.AsError(err)
	}
	for name := range s.objects.packs {
		if err := sharePack(s.packs, dst.packs, name); err != nil {
			return nil, storeError(err)
		}
	}
	if err := dst.objects.refresh(); err != nil {
		return nil, storeError(err)
	}
	return r, storeError(dst.writeRecord(r))
}

// sharePack links a pack, or copies it to another file system.
func sharePack(from, to *os.Root, name string) error {
	a, err := from.Open(".")
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := to.Open(".")
	if err != nil {
		return err
	}
	defer b.Close()
	err = unix.Linkat(int(a.Fd()), name, int(b.Fd()), name, 0)
	switch {
	case err == nil, errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EPERM), errors.Is(err, unix.EMLINK):
		return copyPack(from, to, name)
	}
	return err
}

func copyPack(from, to *os.Root, name string) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	return takePack(to, name, in)
}

// takePack writes a pack from a stream. The pack gets its name only once it is complete.
func takePack(to *os.Root, name string, in io.Reader) error {
	out, err := to.OpenFile(tempPrefix+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err == nil {
		err = to.Rename(tempPrefix+name, name)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(to.Remove(tempPrefix+name)))
	}
	return nil
}
