package overlay

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool/answer"
)

// maxReserve is the maximum number of bytes kept free for the host.
const maxReserve = 2 << 30

// Reserve checks whether the state root's file system has room for more: a twentieth of it, but at most 2 GiB, stays
// free for the host. Below that the error is no_space. It is called before programs start, not for every write.
func (s *Store) Reserve(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	free, total, err := s.space()
	if err != nil {
		return ioError(err, "look at the file system")
	}
	return checkReserve(free, total)
}

// space returns the space of the state root's file system, in bytes.
func (s *Store) space() (free, total uint64, err error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return 0, 0, err
	}
	defer dir.Close()
	st, err := statfs(dir)
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), err
}

// spare returns how many bytes may be written until only the host's reserve is free.
func (s *Store) spare() (int64, error) {
	free, total, err := s.space()
	return int64(free) - int64(reserve(total)), err
}

func reserve(total uint64) uint64 { return min(total/20, maxReserve) }

// Reserve is like [Store.Reserve] for the session's file system. What the session's image still has to write there
// counts as taken.
func (d *Dir) Reserve(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	free, total, err := d.store.space()
	if err != nil {
		return ioError(err, "look at the file system")
	}
	return checkReserve(free-min(free, d.owed()), total)
}

// Covered checks that the host has room for all that was written in the session: an image takes it from the host only
// later, and what then finds no room is lost. The error is no_space.
func (d *Dir) Covered() error {
	owed := d.owed()
	if owed == 0 {
		return nil
	}
	if free, _, err := d.store.space(); err != nil || free >= owed {
		return ioError(err, "look at the file system")
	}
	return ioError(unix.ENOSPC, "write the session's files")
}

// Stored returns when the files of a kept session are on the host's disk, if an image has them: until then another
// program that fills the host's disk makes them disappear. Otherwise it does nothing, as for files of other programs.
func (d *Dir) Stored() error {
	if !d.imaged || !d.State().Kept {
		return nil
	}
	_, tmp := d.looked()
	if err := sys.SyncFS(int(tmp.Fd())); err != nil {
		return answer.Errorf(answer.NoSpace, "the session's files can't be stored: the host's disk is full or broken; free some space on the host, then try again").Because(err)
	}
	return nil
}

// owed returns how many bytes of the files in the session's image have no room on the host yet.
func (d *Dir) owed() uint64 {
	if disk := d.State().Disk; disk == nil || disk.Way != DiskImage {
		return 0
	}
	image, err := d.dir.Stat(imageFile)
	if errors.Is(err, fs.ErrNotExist) { // it is being made
		image, err = d.dir.Stat(newImage)
	}
	if err != nil {
		return 0
	}
	taken, err := d.measure(context.Background(), false)
	if err != nil {
		return 0
	}
	return uint64(max(0, taken.Bytes-image.Sys().(*syscall.Stat_t).Blocks*statBlock))
}

// statBlock is the unit of a file's blocks.
const statBlock = 512

func checkReserve(free, total uint64) error {
	need := reserve(total)
	if free >= need {
		return nil
	}
	return answer.Errorf(answer.NoSpace, "the file system of the state directory has %s free and keeps %s for the host; remove sessions or free some space",
		units.BytesSize(float64(free)), units.BytesSize(float64(need)))
}
