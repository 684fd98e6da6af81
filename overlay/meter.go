package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/quota"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool/answer"
)

// seenAt is the workspace's path for programs.
const seenAt = "/workspace"

const (
	// writeSpeed is the assumed writing speed of a session, in bytes per second. It determines when the watcher looks
	// again, and so how far a session can exceed a limit.
	writeSpeed = 1 << 30
	// inodeCost is the cost of an entry at that speed, in bytes.
	inodeCost = 16 << 10

	// A session far from its limit is walked at most every walkEvery, and its walks take at most an eighth of the time,
	// or half of it from three quarters of the limit on.
	walkEvery = time.Second
	walkShare = 8
	nearShare = 2

	lookMin = 20 * time.Millisecond
	lookMax = 500 * time.Millisecond
)

// meter measures the disk usage of a session's files.
type meter struct {
	mu     sync.Mutex // allows one measurement at a time
	taken  quota.Limit
	base   quota.Limit // usage of the whole file system when taken was counted
	low    quota.Limit // its lowest usage since
	known  bool
	at     time.Time     // time of the last count
	cost   time.Duration // duration of the last count
	seenAt string
}

// Room checks whether the session may write more. The error is no_space if it has reached a limit that the kernel alone
// doesn't enforce. It is called before programs start and before tools change files, but not before they delete some.
func (d *Dir) Room(ctx context.Context) error {
	disk := d.State().Disk
	switch {
	case disk == nil:
		return nil
	case disk.Way == DiskImage: // the kernel enforces the limit, for us too
		return d.writable()
	}
	taken, err := d.measure(ctx, false)
	if err != nil {
		return ioError(err, "count the session's files")
	}
	if !taken.Reaches(disk.limit()) {
		return nil
	}
	return d.full(*disk, taken)
}

// writable reports, by its error, that the kernel has made the session's image read-only: it found no room on the host
// for something that it had to write.
func (d *Dir) writable() error {
	_, tmp := d.looked()
	f, err := sys.Unnamed(int(tmp.Fd()), 0o600)
	if err == nil {
		return unix.Close(f)
	}
	if !errors.Is(err, unix.EROFS) {
		return nil // such as a full disk, from which files can be deleted
	}
	return answer.Errorf(answer.NoSpace, "the session's disk became read-only when the host's disk was full, and what was written last may be lost; "+
		"free some space on the host, then end the session's programs there with wisbox stop %s: its next command can write again", d.id)
}

// DiskUsed returns the disk usage of the session's files, or slightly more: bytes, and the number of files and
// directories.
func (d *Dir) DiskUsed(ctx context.Context) (bytes, inodes int64, err error) {
	if d.State().Disk == nil {
		return 0, 0, answer.Errorf(answer.Unsupported, "the disk usage of a session without a disk limit isn't counted")
	}
	taken, err := d.measure(ctx, false)
	return taken.Bytes, taken.Inodes, ioError(err, "count the session's files")
}

// full returns an error whose advice also works while no program may start.
func (d *Dir) full(disk Disk, taken quota.Limit) error {
	what, flag := fmt.Sprintf("limit of %d files and directories", disk.Inodes), "inodes N"
	if disk.Bytes > 0 && taken.Bytes >= disk.Bytes {
		what, flag = "disk limit of "+units.BytesSize(float64(disk.Bytes)), "disk SIZE"
	}
	return answer.Errorf(answer.NoSpace, "the session's %s is reached, so no program may start; delete files with the tool rm (on the host: wisbox call %s rm '{\"path\":\"FILE\"}'), "+
		"or raise the limit there with wisbox update %[2]s --%[3]s", what, d.id, flag)
}

// measure returns the disk usage of the session's files, or slightly more: see [meter.count]. With exactly it always
// counts them.
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
	return quota.Limit{Bytes: int64(st.Blocks-st.Bfree) * int64(st.Bsize), Inodes: int64(st.Files - st.Ffree)}
}

// count walks the files only if necessary. If the file system hasn't changed, neither has the session. If the last
// count plus all growth of the file system since, of any session, is below the limit, so is this session. Since
// simultaneous deletions by others could hide its writes, it is still counted at intervals.
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
	unlinked := quota.Unlinked(ctx, workspace, m.seenAt)
	if err := ctx.Err(); err != nil { // the count may lack some
		return m.taken, err
	}
	taken = quota.Limit{Bytes: taken.Bytes + unlinked.Bytes, Inodes: taken.Inodes + unlinked.Inodes}
	if !exact && m.known { // then all growth counts as ours
		taken = quota.Limit{Bytes: max(taken.Bytes, most.Bytes), Inodes: max(taken.Inodes, most.Inodes)}
	}
	m.taken, m.base, m.low, m.known = taken, now, now, true
	m.at, m.cost = time.Now(), time.Since(began)
	return taken, nil
}

// isGoodFor reports whether the last count is recent enough.
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

// atMost returns the session's usage if all growth of the file system is its own.
func (m *meter) atMost(now quota.Limit) quota.Limit {
	return quota.Limit{
		Bytes:  m.taken.Bytes + now.Bytes - m.low.Bytes,
		Inodes: m.taken.Inodes + now.Inodes - m.low.Inodes,
	}
}

// WatchDisk watches the session's disk until ctx ends, and calls end whenever programs must be ended: if the session
// reaches a limit that the kernel doesn't enforce, or if it grows on a host that is nearly full. end must not wait for
// the programs. WatchDisk returns at once for a session without limits. It must have returned before Close.
//
// It looks again when the session could have reached the limit at 1 GiB/s, after at least 20 ms and at most half a
// second. While the file system doesn't change, a look is one system call.
func (d *Dir) WatchDisk(ctx context.Context, end func()) {
	disk := d.State().Disk
	if disk == nil {
		return
	}
	w := watcher{dir: d, end: end}
	for {
		w.disk = *d.State().Disk // which ResizeDisk may have changed
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
	last quota.Limit // the session's usage then
}

// look ends programs if necessary, and returns the time until the next look.
func (w *watcher) look(ctx context.Context) time.Duration {
	spare, err := w.dir.store.spare()
	if err != nil {
		return lookMax
	}
	spare -= int64(w.dir.owed())
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

// growsOnFullHost reports whether the session keeps writing on a host that is nearly full: only such sessions must
// stop.
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

// left returns how much more the session may write, with entries converted to bytes.
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
