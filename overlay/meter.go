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

	// A session whose limit is far is walked through every walkEvery at most, and
	// its walks take an eighth of the time; half of it from three quarters of the
	// limit on.
	walkEvery = time.Second
	walkShare = 8
	nearShare = 2

	lookMin = 20 * time.Millisecond
	lookMax = 500 * time.Millisecond
)

// meter knows what a session's files take.
type meter struct {
	mu     sync.Mutex // one look at a time
	taken  quota.Limit
	base   quota.Limit // what the whole file system held when taken was counted
	low    quota.Limit // the least that it has held since
	known  bool
	at     time.Time     // when that was
	cost   time.Duration // and how long it took
	seenAt string
}

// Room says whether the session may have more: the error is no_space where its
// limit is reached and the kernel alone doesn't keep it. Programs and changes by
// tools ask before they begin; deleting doesn't.
func (d *Dir) Room(ctx context.Context) error {
	disk := d.State().Disk
	if disk == nil || disk.Way == DiskImage { // the kernel says so itself, to us too
		return nil
	}
	taken, err := d.measure(ctx, false)
	if err != nil {
		return ioError(err, "count the session's files")
	}
	if !taken.Reaches(disk.limit()) {
		return nil
	}
	return full(*disk, taken)
}

// DiskUsed is what the session's files take of the disk, or a little more: bytes, and files and
// directories.
func (d *Dir) DiskUsed(ctx context.Context) (bytes, inodes int64, err error) {
	if d.State().Disk == nil {
		return 0, 0, tool.Errorf(tool.Unsupported, "what a session without a disk limit takes isn't counted")
	}
	taken, err := d.measure(ctx, false)
	return taken.Bytes, taken.Inodes, ioError(err, "count the session's files")
}

func full(disk Disk, taken quota.Limit) error {
	if disk.Bytes > 0 && taken.Bytes >= disk.Bytes {
		return tool.Errorf(tool.NoSpace, "the session's disk limit of %s is reached; delete files with rm", units.BytesSize(float64(disk.Bytes)))
	}
	return tool.Errorf(tool.NoSpace, "the session's limit of %d files and directories is reached; delete some with rm", disk.Inodes)
}

// measure reports what the session's files take, or a little more: see
// [meter.count]. exactly counts them whatever that takes.
func (d *Dir) measure(ctx context.Context, exactly bool) (quota.Limit, error) {
	d.meter.mu.Lock()
	defer d.meter.mu.Unlock()
	workspace, tmp := d.looked()
	switch disk := d.State().Disk; disk.Way {
	case DiskImage:
		st, err := statfs(workspace)
		return usedOf(st), err
	case DiskProject:
		taken, _, err := quota.ProjectUsage(tmp, disk.Project)
		taken.Inodes -= 2 // the two directories themselves
		return taken, err
	default:
		return d.meter.count(ctx, disk.limit(), exactly, workspace, tmp)
	}
}

func statfs(dir *os.File) (st unix.Statfs_t, err error) {
	err = unix.Fstatfs(int(dir.Fd()), &st)
	return st, err
}

func usedOf(st unix.Statfs_t) quota.Limit {
	return quota.Limit{Bytes: int64(st.Blocks-st.Bfree) * st.Bsize, Inodes: int64(st.Files - st.Ffree)}
}

// count walks through the files only when it must. While the file system has not
// changed, nothing has. While all that came to it since, whosever it is, would
// not reach the limit together with what was counted then, neither has this
// session; what others delete at the very moment could hide what it writes, so it
// is counted all the same in due time.
func (m *meter) count(ctx context.Context, limit quota.Limit, exactly bool, workspace, tmp *os.File) (quota.Limit, error) {
	st, err := statfs(workspace)
	if err != nil {
		return m.taken, err
	}
	now := usedOf(st)
	if m.known && now == m.base {
		return m.taken, nil
	}
	m.low = quota.Limit{Bytes: min(m.low.Bytes, now.Bytes), Inodes: min(m.low.Inodes, now.Inodes)}
	most := m.atMost(now)
	if m.known && !exactly && m.isGoodFor(most, limit) {
		return most, nil
	}
	began := time.Now()
	taken, exact, err := quota.Walk(ctx, limit, workspace, tmp)
	if err != nil {
		return m.taken, err
	}
	unlinked := quota.Unlinked(workspace, m.seenAt)
	taken = quota.Limit{Bytes: taken.Bytes + unlinked.Bytes, Inodes: taken.Inodes + unlinked.Inodes}
	if !exact && m.known { // then all that came is taken for ours
		taken = quota.Limit{Bytes: max(taken.Bytes, most.Bytes), Inodes: max(taken.Inodes, most.Inodes)}
	}
	m.taken, m.base, m.low, m.known = taken, now, now, true
	m.at, m.cost = time.Now(), time.Since(began)
	return taken, nil
}

// isGoodFor says whether the last count is recent enough.
func (m *meter) isGoodFor(most, limit quota.Limit) bool {
	age := time.Since(m.at)
	near := quota.Limit{Bytes: most.Bytes + most.Bytes/3 + 1, Inodes: most.Inodes + most.Inodes/3 + 1}
	switch {
	case most.Reaches(limit):
		return false
	case near.Reaches(limit):
		return age < nearShare*m.cost
	}
	return age < max(walkEvery, walkShare*m.cost)
}

// atMost is what the session takes if all that came to the file system is its own.
func (m *meter) atMost(now quota.Limit) quota.Limit {
	return quota.Limit{
		Bytes:  m.taken.Bytes + now.Bytes - m.low.Bytes,
		Inodes: m.taken.Inodes + now.Inodes - m.low.Inodes,
	}
}

// WatchDisk looks after the session's disk until ctx ends and calls end each time
// that it finds programs to be ended: when a limit is reached that the kernel
// doesn't keep, and when the session grows on a host that is nearly full, whatever
// keeps its limit. end must not wait for the programs. A session that was
// made without limits isn't watched. It must have returned before Close.
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
	low  bool        // the host was nearly full at the last look
	last quota.Limit // what the session took then
}

// look ends programs where it must, and says when to look again.
func (w *watcher) look(ctx context.Context) time.Duration {
	spare, err := w.dir.store.spare()
	if err != nil {
		return lookMax
	}
	if w.growsOnFullHost(ctx, spare) {
		w.end()
		return lookMin
	}
	if w.disk.Way != DiskWatch {
		return nextLook(spare)
	}
	taken, err := w.dir.measure(ctx, false)
	if err != nil {
		return lookMax
	}
	if taken.Reaches(w.disk.limit()) {
		w.end()
	}
	return nextLook(min(spare, w.left(taken)))
}

// growsOnFullHost: of the sessions on a host that is nearly full only those must
// stop that write on.
func (w *watcher) growsOnFullHost(ctx context.Context, spare int64) bool {
	was := w.low
	w.low = spare <= 0
	if !w.low {
		return false
	}
	taken, err := w.dir.measure(ctx, true)
	if err != nil {
		return false
	}
	grew := taken.Bytes > w.last.Bytes || taken.Inodes > w.last.Inodes
	w.last = taken
	return was && grew
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
