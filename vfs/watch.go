package vfs

import (
	"context"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// Op is what happened to a path.
type Op string

// The ops of a Change.
const (
	Created  Op = "created"
	Changed  Op = "changed" // content, mode, or replaced
	Removed  Op = "removed" // or moved away
	Overflow Op = "overflow"
)

// Change is one thing that happened below a watched path. With Overflow some
// changes were lost, or some directories are not watched: look at all again.
type Change struct {
	Path string // "" with Overflow
	Op   Op
}

const (
	maxWatched   = 8_192                 // directories
	watchGather  = 20 * time.Millisecond // changes of one path within it are one
	watchPending = 10_000                // paths, before an overflow
	watchQueue   = 256                   // changes that wait for a slow receiver
	watchMask    = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
)

// Watch tells of changes below the directory path, by tools and by programs,
// until ctx ends or the FS is closed; then the channel closes. Directories that
// are made later are watched too, links are not followed. Changes that come close
// together are told once. It holds one descriptor.
func (f *FS) Watch(ctx context.Context, name string) (<-chan Change, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	rel, err := clean(name)
	if err != nil {
		return nil, in(err, "path")
	}
	base, err := f.tree.OpenDir(rel)
	if err != nil {
		return nil, in(fail(err, rel), "path")
	}
	w, err := newWatcher(base, rel)
	if err != nil {
		return nil, errors.Join(watchError(err), base.Close())
	}
	ctx, w.stop = context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { _ = w.events.Close() })
	f.watches.add(w)
	out := make(chan Change, watchQueue)
	go func() {
		defer f.watches.remove(w)
		defer close(out)
		defer base.Close()
		defer w.stop()
		w.run(ctx, out)
	}()
	return out, nil
}

func watchError(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENOSPC) {
		return tool.Errorf(tool.Limit, "the host allows no more watches; end others first").Because(err)
	}
	return tool.AsError(err)
}

// watcher is one watch. It belongs to the goroutine that runs it. It speaks to
// inotify itself: the libraries know directories by paths, which a program swaps
// for links between a look and the call, and this one by what is open.
type watcher struct {
	base    *beneath.Handle
	rel     string // base, as asked for
	events  *os.File
	stop    context.CancelFunc
	watched map[int32]string // directories by their watch, relative to base
	pending map[string]Op
	order   []string
	lost    bool
}

func newWatcher(base *beneath.Handle, rel string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		base: base, rel: rel, events: os.NewFile(uintptr(fd), "inotify"), watched: map[int32]string{}, pending: map[string]Op{},
	}
	if err := w.add("", false); err != nil {
		return nil, errors.Join(err, w.events.Close())
	}
	return w, nil
}

// add watches a directory and those below it. With tell it notes what is there
// as created: it may have come before the watch.
func (w *watcher) add(at string, tell bool) error {
	for todo := []string{at}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		below, err := w.addOne(dir, tell)
		if err != nil && dir == "" {
			return err
		}
		if errors.Is(err, unix.ENOSPC) {
			w.lost = true
		}
		todo = append(todo, below...)
	}
	return nil
}

func (w *watcher) addOne(dir string, tell bool) (below []string, err error) {
	fd, err := beneath.OpenBelow(int(w.base.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if len(w.watched) == maxWatched {
		return nil, unix.ENOSPC
	}
	// The name stands for the open directory itself, wherever it lies by now.
	wd, err := watchFD(w.events, fd)
	if err != nil {
		return nil, err
	}
	w.watched[wd] = dir
	err = beneath.ReadDir(fd, func(e beneath.Entry) bool {
		name := join(dir, strings.Clone(e.Name))
		if tell {
			w.note(name, Created)
		}
		if e.Type == unix.DT_DIR {
			below = append(below, name)
		}
		return len(below) < maxWatched
	})
	return below, err
}

func watchFD(events *os.File, fd int) (wd int32, err error) {
	raw, err := events.SyscallConn()
	if err != nil {
		return 0, err
	}
	ctrlErr := raw.Control(func(in uintptr) {
		var n int
		n, err = unix.InotifyAddWatch(int(in), "/proc/self/fd/"+strconv.Itoa(fd)+"/.", watchMask)
		wd = int32(n)
	})
	return wd, errors.Join(ctrlErr, err)
}

// run reads events, gathers them for a moment and sends what they come to.
func (w *watcher) run(ctx context.Context, out chan<- Change) {
	buf := make([]byte, 64<<10)
	for {
		_ = w.events.SetReadDeadline(time.Time{})
		n, err := w.events.Read(buf)
		if err != nil {
			return
		}
		w.take(buf[:n])
		_ = w.events.SetReadDeadline(time.Now().Add(watchGather))
		for err == nil {
			if n, err = w.events.Read(buf); err == nil {
				w.take(buf[:n])
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !w.send(ctx, out) {
			return
		}
	}
}

// take notes what the kernel tells: a fixed header, then a padded name.
func (w *watcher) take(buf []byte) {
	for len(buf) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
		end := unix.SizeofInotifyEvent + int(e.Len)
		if end > len(buf) {
			return
		}
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
		w.event(e.Wd, e.Mask, name)
		buf = buf[end:]
	}
}

func (w *watcher) event(wd int32, mask uint32, name string) {
	dir, known := w.watched[wd]
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		w.lost = true
	case mask&unix.IN_IGNORED != 0:
		delete(w.watched, wd)
	case !known || name == "":
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.note(join(dir, name), Created)
		if mask&unix.IN_ISDIR != 0 {
			_ = w.add(join(dir, name), true)
		}
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		w.note(join(dir, name), Removed)
	default:
		w.note(join(dir, name), Changed)
	}
}

// note merges what happened to one path: what is both made and removed was
// replaced, or is gone; which of them, a look says when it is sent.
func (w *watcher) note(name string, op Op) {
	was, there := w.pending[name]
	switch {
	case !there && len(w.pending) == watchPending:
		w.lost = true
		return
	case !there:
		w.order = append(w.order, name)
	case was == op || op == Changed:
		return
	case was == Created && op == Removed, was == Removed && op == Created:
		op = replaced
	case was == replaced:
		op = replaced
	}
	w.pending[name] = op
}

const replaced Op = "replaced"

func (w *watcher) send(ctx context.Context, out chan<- Change) bool {
	changes := make([]Change, 0, len(w.order)+1)
	if w.lost {
		changes = append(changes, Change{Op: Overflow})
	}
	for _, name := range w.order {
		op := w.pending[name]
		if op == replaced {
			op = w.now(name)
		}
		changes = append(changes, Change{Path: Display(join(w.rel, name)), Op: op})
	}
	w.lost, w.order = false, nil
	clear(w.pending)
	for _, c := range changes {
		select {
		case out <- c:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (w *watcher) now(name string) Op {
	dir, entry := path.Split(name)
	fd, err := beneath.OpenBelow(int(w.base.Fd()), strings.TrimSuffix(dir, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return Removed
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstatat(fd, entry, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return Removed
	}
	return Changed
}

// watches are those of one FS, so that its Close can end them.
type watches struct {
	mu  sync.Mutex
	set map[*watcher]struct{}
	wg  sync.WaitGroup
}

func (ws *watches) add(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.set == nil {
		ws.set = map[*watcher]struct{}{}
	}
	ws.set[w] = struct{}{}
	ws.wg.Add(1)
}

func (ws *watches) remove(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.set, w)
	ws.wg.Done()
}

func (ws *watches) close() {
	ws.mu.Lock()
	for w := range ws.set {
		w.stop()
	}
	ws.mu.Unlock()
	ws.wg.Wait()
}
