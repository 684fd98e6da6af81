package hostmount

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// progressEvery is the interval of reports about progress.
const progressEvery = 100 * time.Millisecond

// stage is the directory in which the mounts are assembled. Programs can't see it, so paths in it are safe.
type stage struct {
	opts Options
	root *os.Root

	noClone, noRange atomic.Bool // not supported by the file system

	mu       sync.Mutex // guards the plans' reports and the fields below
	progress Progress
	told     time.Time
}

// stageAndPlace copies the tree and moves it into the workspace. The staging
// directory is gone when it returns.
func stageAndPlace(ctx context.Context, tree *layout, opts Options) error {
	name := "mount-" + strings.ToLower(rand.Text())
	if err := opts.Staging.Mkdir(name, 0o700); err != nil {
		return writeError(err)
	}
	defer clean(opts.Staging, name)
	root, err := opts.Staging.OpenRoot(name)
	if err != nil {
		return writeError(err)
	}
	defer root.Close()
	s := &stage{opts: opts, root: root}
	if err := s.fill(ctx, tree); err != nil {
		return err
	}
	return moveIn(ctx, root, opts.Dest)
}

// clean deletes the stage. The next open of the session empties the staging directory and removes files that clean
// couldn't delete.
func clean(staging *os.Root, name string) {
	dir, err := staging.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	_, _ = beneath.RemoveAll(dir, name)
}

func (s *stage) fill(ctx context.Context, tree *layout) error {
	dirs := tree.sortedDirs()
	for _, dir := range dirs {
		if err := s.root.Mkdir(dir, 0o700); err != nil {
			return writeError(err)
		}
	}
	for _, it := range tree.files {
		s.progress.TotalFiles++
		s.progress.TotalBytes += it.size
	}
	if err := s.copyAll(ctx, tree); err != nil {
		return err
	}
	if err := s.joinNames(ctx, tree); err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := s.finishDir(dir, tree.dirs[dir]); err != nil {
			return writeError(err)
		}
	}
	s.tell(0, 0, true)
	return nil
}

// finishDir sets a directory's owner and mode. The owner always keeps all rights, since a tree that programs can't
// enter or delete is useless.
func (s *stage) finishDir(dir string, it *item) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	mode := fs.FileMode(0o755)
	if it != nil {
		mode = fs.FileMode(it.mode) | 0o700
	}
	if err := s.give(f); err != nil {
		return err
	}
	return f.Chmod(mode)
}

func (s *stage) give(f *os.File) error {
	if s.opts.Owner == nil {
		return nil
	}
	return f.Chown(s.opts.Owner.UID, s.opts.Owner.GID)
}

func (s *stage) copyAll(ctx context.Context, tree *layout) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(min(8, 2*runtime.NumCPU()))
	for _, batch := range tree.batches() {
		group.Go(func() error { return s.copyBatch(ctx, batch) })
	}
	return group.Wait()
}

// joinNames makes the other names of files with several ones. If the first could not be copied, neither can these.
func (s *stage) joinNames(ctx context.Context, tree *layout) error {
	for _, it := range tree.files {
		switch {
		case it.first == nil:
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case it.first.dropped:
			s.mu.Lock()
			it.plan.skip(it.dst, Changed)
			it.dropped = true
			s.mu.Unlock()
			continue
		}
		if err := s.root.Link(it.first.dst, it.dst); err != nil {
			return writeError(err)
		}
		s.tell(1, it.size, false)
	}
	return nil
}

// copyBatch copies files of one directory.
func (s *stage) copyBatch(ctx context.Context, batch []*item) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := s.root.Open(path.Join(".", parent(batch[0].dst)))
	if err != nil {
		return writeError(err)
	}
	defer dir.Close()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for _, it := range batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.copyItem(ctx, dir, it, *buf); err != nil {
			return err
		}
	}
	return nil
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// link copies a link.
func (s *stage) link(dir *os.File, it *item) error {
	at, name := int(dir.Fd()), path.Base(it.dst)
	if err := unix.Symlinkat(it.link, at, name); err != nil {
		return writeError(err)
	}
	if s.opts.Owner != nil {
		if err := unix.Fchownat(at, name, s.opts.Owner.UID, s.opts.Owner.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return writeError(err)
		}
	}
	s.tell(1, 0, false)
	return writeError(unix.UtimesNanoAt(at, name, []unix.Timespec{it.mtime, it.mtime}, unix.AT_SYMLINK_NOFOLLOW))
}

// copyItem copies one file, or records the reason why it can't.
func (s *stage) copyItem(ctx context.Context, dir *os.File, it *item, buf []byte) error {
	if it.link != "" {
		return s.link(dir, it)
	}
	if it.text != "" {
		return s.writeText(dir, it)
	}
	src, why := it.open()
	if why != "" {
		s.drop(it, why)
		return nil
	}
	defer src.Close()
	if err := s.recharge(it, src.Stat.Size); err != nil {
		return err
	}
	it.mode, it.mtime = uint32(src.Stat.Mode)&0o777, src.Stat.Mtim
	n, why, err := s.write(ctx, dir, it, src.File, buf)
	if err != nil {
		return err
	}
	if why != "" {
		s.drop(it, why)
		return nil
	}
	if err := s.recharge(it, n); err != nil {
		return err
	}
	s.tell(1, n, false)
	return nil
}

// writeText writes a file whose content isn't the source's.
func (s *stage) writeText(dir *os.File, it *item) error {
	fd, err := unix.Openat(int(dir.Fd()), path.Base(it.dst), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return writeError(err)
	}
	dst := os.NewFile(uintptr(fd), it.dst)
	_, err = dst.WriteString(it.text)
	if err == nil {
		err = s.attributes(dir, dst, it)
	}
	s.tell(1, it.size, false)
	return writeError(errors.Join(err, dst.Close()))
}

// open opens a source's file again and checks that it wasn't replaced.
func (it *item) open() (*beneath.Handle, Reason) {
	p := it.plan
	src, err := p.src.tree.Open(it.src)
	if err != nil {
		return nil, reasonOf(err)
	}
	why := p.refuses(&src.Stat)
	if !p.mount.FollowSymlinks && p.src.file == "" && src.Path != it.src {
		why = Changed // by a link
	}
	if why != "" {
		_ = src.Close()
		return nil, why
	}
	return src, ""
}

// recharge corrects the size that the plan charged for a file.
func (s *stage) recharge(it *item, size int64) error {
	if size == it.size {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	more := size - it.size
	it.size = size
	return it.plan.charge(more)
}

// drop removes a file from the plan that can't be copied after all.
func (s *stage) drop(it *item, why Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := it.plan
	p.skip(it.dst, why)
	_ = p.charge(-it.size)
	it.dropped = true
}

// write creates the file in dir, with owner, mode and time. why is set if the source can't be read, err if the copy
// can't be written.
func (s *stage) write(ctx context.Context, dir *os.File, it *item, src *os.File, buf []byte) (n int64, why Reason, err error) {
	name := path.Base(it.dst)
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, "", writeError(err)
	}
	dst := os.NewFile(uintptr(fd), name)
	n, err = s.content(ctx, dst, src, it.size, buf)
	if err == nil {
		err = s.attributes(dir, dst, it)
	}
	err = errors.Join(err, dst.Close())
	if unreadable := (readError{}); errors.As(err, &unreadable) {
		return 0, reasonOf(unreadable.error), unix.Unlinkat(int(dir.Fd()), name, 0)
	}
	return n, "", writeError(err)
}

// attributes sets attributes by descriptor, the owner first, since changing it may clear mode bits.
func (s *stage) attributes(dir, dst *os.File, it *item) error {
	if err := s.give(dst); err != nil {
		return err
	}
	if err := unix.Fchmod(int(dst.Fd()), it.mode); err != nil {
		return err
	}
	times := []unix.Timespec{it.mtime, it.mtime}
	return unix.UtimesNanoAt(int(dir.Fd()), path.Base(it.dst), times, unix.AT_SYMLINK_NOFOLLOW)
}

// tell reports progress, at most ten times a second.
func (s *stage) tell(files, bytes int64, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Files += files
	s.progress.Bytes += bytes
	if s.opts.Progress == nil || !last && time.Since(s.told) < progressEvery {
		return
	}
	s.told = time.Now()
	s.opts.Progress(s.progress)
}

// writeError returns the error for a failure in the workspace.
func writeError(err error) error {
	var te *tool.Error
	switch {
	case err == nil, errors.As(err, &te), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return tool.Errorf(tool.NoSpace, "the workspace's file system is full; nothing was copied").Because(err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return tool.Errorf(tool.Permission, "the workspace can't be written by the user that runs wisbox; nothing was copied").Because(err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return tool.Errorf(tool.Limit, "too many files are open; nothing was copied").Because(err)
	}
	return tool.Errorf(tool.Unavailable, "the workspace could not be written; nothing was copied").Because(err)
}
