package overlay

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/quota"
	"github.com/wisbox/wisbox/tool"
)

// seenAt is where a program sees the workspace.
const seenAt = "/workspace"

const (
	// writeSpeed is how fast a session is taken to write, in bytes a second. It
	// sets when the watcher looks again, and so what can be written over a limit.
	writeSpeed = 1 << 30
	// inodeCost is what an entry counts against that speed.
	inodeCost = 16 << 10

	lookMin = 20 * time.Millisecond
	lookMax = 500 * time.Millisecond
)

// meter knows what a session's files take.
type meter struct {
	mu     sync.Mutex // one look at a time
	taken  quota.Limit
	known  bool
	moved  fsState // of the file system, when taken was counted
	seenAt string
}

// fsState is what moves when anybody writes to a file system.
type fsState struct{ blocks, files uint64 }

// Room says whether the session may have more: the error is no_space where its
// limit is reached and the kernel alone doesn't keep it. Programs and changes by
// tools ask before they begin; deleting doesn't.
func (d *Dir) Room(ctx context.Context) error {
	disk := d.State().Disk
	if disk == nil || disk.Way == DiskImage { // the kernel says so itself, to us too
		return nil
	}
	taken, err := d.measure(ctx)
	if err != nil {
		return ioError(err, "count the session's files")
	}
	if !taken.Reaches(disk.limit()) {
		return nil
	}
	return full(*disk, taken)
}

func full(disk Disk, taken quota.Limit) error {
	if disk.Bytes > 0 && taken.Bytes >= disk.Bytes {
		return tool.Errorf(tool.NoSpace, "the session's disk limit of %s is reached; delete files with rm", units.BytesSize(float64(disk.Bytes)))
	}
	return tool.Errorf(tool.NoSpace, "the session's limit of %d files and directories is reached; delete some with rm", disk.Inodes)
}

// measure tells what the session's files take. It is a matter of microseconds
// unless they must be counted, which they are when the file system has changed
// since the last time.
func (d *Dir) measure(ctx context.Context) (quota.Limit, error) {
	d.meter.mu.Lock()
	defer d.meter.mu.Unlock()
	workspace, tmp := d.looked()
	switch disk := d.State().Disk; disk.Way {
	case DiskImage:
		st, err := statfs(workspace)
		return quota.Limit{Bytes: int64(st.Blocks-st.Bfree) * st.Bsize, Inodes: int64(st.Files - st.Ffree)}, err
	case DiskProject:
		taken, _, err := quota.ProjectUsage(tmp, disk.Project)
		taken.Inodes -= 2 // the two directories themselves
		return taken, err
	default:
		return d.meter.count(ctx, disk.limit(), workspace, tmp)
	}
}

func statfs(dir *os.File) (st unix.Statfs_t, err error) {
	err = unix.Fstatfs(int(dir.Fd()), &st)
	return st, err
}

func (m *meter) count(ctx context.Context, limit quota.Limit, workspace, tmp *os.File) (quota.Limit, error) {
	st, err := statfs(workspace)
	if err != nil {
		return m.taken, err
	}
	now := fsState{st.Blocks - st.Bfree, st.Files - st.Ffree}
	if m.known && now == m.moved {
		return m.taken, nil
	}
	taken, exact, err := quota.Walk(ctx, limit, workspace, tmp)
	if err != nil {
		return m.taken, err
	}
	unlinked := quota.Unlinked(workspace, m.seenAt)
	taken.Bytes, taken.Inodes = taken.Bytes+unlinked.Bytes, taken.Inodes+unlinked.Inodes
	if !exact && m.known { // then all that came to the file system is taken for ours
		grown := int64(now.blocks-m.moved.blocks) * st.Bsize
		taken.Bytes = max(taken.Bytes, m.taken.Bytes+grown)
		taken.Inodes = max(taken.Inodes, m.taken.Inodes+int64(now.files-m.moved.files))
	}
	m.taken, m.moved, m.known = taken, now, exact || m.known
	return taken, nil
}

// WatchDisk looks after the session's disk until ctx ends and calls end each time
// that it finds programs to be ended: when a limit is reached that the kernel
// doesn't keep, and when the session grows on a host that is nearly full, whatever
// keeps its limit. end must not wait for the programs. A session that was
// made without limits isn't watched.
//
// It looks again when the session could have reached the limit at 1 GiB/s, after
// 20 ms at least and half a second at most; between changes of the file system
// a look is one system call.
func (d *Dir) WatchDisk(ctx context.Context, end func()) {
	disk := d.State().Disk
	if disk == nil {
		return
	}
	w := watcher{dir: d, disk: *disk, end: end}
	for {
		next := w.look(ctx)
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
	}
}

type watcher struct {
	dir  *Dir
	disk Disk
	end  func()
	last quota.Limit
}

// look ends programs where it must, and says when to look again.
func (w *watcher) look(ctx context.Context) time.Duration {
	taken, err := w.dir.measure(ctx)
	if err != nil {
		return lookMax
	}
	grew := taken.Bytes > w.last.Bytes || taken.Inodes > w.last.Inodes
	w.last = taken
	spare, err := w.dir.store.spare()
	if err != nil {
		return lookMax
	}
	if w.disk.Way == DiskWatch {
		spare = min(spare, w.left(taken))
		if taken.Reaches(w.disk.limit()) {
			grew = true
		}
	}
	if spare <= 0 && grew {
		w.end()
	}
	return nextLook(spare)
}

// left is how much more the session may write, entries taken for bytes.
func (w *watcher) left(taken quota.Limit) int64 {
	left := int64(1) << 62
	if w.disk.Bytes > 0 {
		left = w.disk.Bytes - taken.Bytes
	}
	if w.disk.Inodes > 0 {
		left = min(left, (w.disk.Inodes-taken.Inodes)*inodeCost)
	}
	return left
}

func nextLook(spare int64) time.Duration {
	if spare >= writeSpeed {
		return lookMax
	}
	return min(max(time.Duration(spare)*time.Second/writeSpeed, lookMin), lookMax)
}
