package vfs

import (
	"context"
	"errors"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxWatched   = 8_192                 // directories
	watchMemory  = 4 << 20               // bytes of the paths of these, of changes that wait, and of directories to look at
	watchGather  = 20 * time.Millisecond // changes of one path within this time count as one
	watchPending = 10_000                // paths, before an overflow
	watchQueue   = 256                   // changes that wait for a slow receiver
	watchMask    = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
)

// A program can create and move directories at no cost, and a watch has to scan each new one. So it
// scans once for all changes of a period, within a budget, and rests watchRest times as long as it
// worked.
const (
	watchSteps = 200_000                // entries scanned at once; a directory counts as watchOpen
	watchOpen  = 8                      // steps
	watchTime  = 200 * time.Millisecond // of one scan
	watchRest  = 9
	watchRests = 2 * time.Second // at most
	watchCame  = 1_000           // new directories at once; if there are more, everything is scanned again
	watchWent  = 100             // likewise directories that were moved away
	watchReads = 256             // of 64 KiB at once: more than the kernel's queue
)

// Watch reports changes below a directory, by tools and by programs, until ctx ends or the FS is
// closed; then it closes the channel. It also watches directories that are created later, at most
// 8,192 in total, and doesn't follow links. Changes close together become one event, and more changes
// than can be followed cheaply become an Overflow. A watch takes one descriptor.
func (f *FS) Watch(ctx context.Context, name string) (<-chan Change, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	rel, err := Any.clean(name)
	if err != nil {
		return nil, in(err, "path")
	}
	base, err := f.tree.OpenDir(rel)
	if err != nil {
		return nil, in(fail(err, rel), "path")
	}
	w, err := newWatcher(ctx, base, f.opts.Paths, rel)
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
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOSPC) {
		return tool.Errorf(tool.Limit, "the host allows no more watches; end other watches first").Because(err)
	}
	return tool.AsError(err)
}

// watcher is one watch. It is for the goroutine that runs it. It calls inotify itself: libraries
// identify directories by paths, which a program can replace by links between a check and the call,
// whereas this one uses open descriptors.
type watcher struct {
	base    *beneath.Handle
	paths   Grammar
	rel     string // base, as requested
	events  *os.File
	stop    context.CancelFunc
	time    time.Duration // of one scan
	watched map[int32]watchedDir
	memory  int // bytes of the paths in watched
	pending map[string]Op
	order   []string
	noted   int // bytes of the paths in order
	lost    bool

	round int                 // scans of new directories so far
	fresh map[string]struct{} // new directories, to be scanned with everything below
	todo  []string            // directories that a scan has not reached yet
	queue int                 // bytes of the paths in todo
	gone  map[string]int      // directories that are gone, and in which round
}

// watchedDir is a directory by its watch.
type watchedDir struct {
	path  string // relative to base, as of round
	round int
}

func newWatcher(ctx context.Context, base *beneath.Handle, paths Grammar, rel string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		base: base, paths: paths, rel: rel, events: os.NewFile(uintptr(fd), "inotify"), watched: map[int32]watchedDir{},
		time: watchTime, pending: map[string]Op{}, fresh: map[string]struct{}{}, gone: map[string]int{},
	}
	b := budget.New(ctx, budget.Limits{})
	defer b.Close()
	w.push("")
	if err := w.look(b, false); err != nil {
		return nil, errors.Join(err, w.events.Close())
	}
	return w, nil
}

// push queues the scan of a directory and those below it.
func (w *watcher) push(dir string) {
	if w.queue > watchMemory {
		w.lost = true
		return
	}
	w.todo = append(w.todo, dir)
	w.queue += len(dir)
}

// look watches the directories in todo and those below them, as far as the budget allows. If tell
// is set, it reports their entries as created, since they may be older than the watch. Only errors
// of the base itself are returned.
func (w *watcher) look(b *budget.Budget, tell bool) error {
	for len(w.todo) > 0 {
		if b.Step(watchOpen) != nil {
			w.lost = true
			return nil
		}
		last := len(w.todo) - 1
		dir := w.todo[last]
		w.todo = w.todo[:last]
		w.queue -= len(dir)
		err := w.lookAt(b, dir, tell)
		if err != nil && dir == "" {
			return err
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) {
			w.lost = true
		}
	}
	return nil
}

func (w *watcher) lookAt(b *budget.Budget, dir string, tell bool) error {
	fd, err := beneath.OpenBelow(int(w.base.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := w.watch(fd, dir); err != nil {
		return err
	}
	entries := 0
	err = beneath.ReadDir(fd, func(e beneath.Entry) bool {
		if entries++; entries > watchSteps { // it grows during the scan
			w.lost = true
			return false
		}
		name := join(dir, strings.Clone(e.Name))
		if tell {
			w.note(name, Created)
		}
		if e.Type == unix.DT_DIR {
			w.push(name)
		}
		return true
	})
	_ = b.Step(entries) // the next directory finds the budget used up
	return err
}

// watch adds an open directory. One that is already watched keeps its watch and gets its current
// name.
func (w *watcher) watch(fd int, dir string) error {
	// The name means the open directory itself, wherever it is by now.
	wd, err := watchFD(w.events, fd)
	if err != nil {
		return err
	}
	was, known := w.watched[wd]
	if !known && (len(w.watched) >= maxWatched || w.memory > watchMemory) {
		w.unwatch(wd)
		return unix.ENOSPC
	}
	w.memory += len(dir) - len(was.path)
	w.watched[wd] = watchedDir{dir, w.round}
	return nil
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

// run reads events, collects them for a moment and sends the resulting changes.
func (w *watcher) run(ctx context.Context, out chan<- Change) {
	buf := make([]byte, 64<<10)
	for {
		if !w.lost && len(w.todo) == 0 {
			n, err := w.events.Read(buf)
			if err != nil {
				return
			}
			w.take(buf[:n])
		}
		if !sleep(ctx, watchGather) {
			return
		}
		start := time.Now()
		if err := w.drain(buf); err != nil {
			return
		}
		w.lookAgain(ctx)
		changes := w.changes()
		spent := time.Since(start)
		if !deliver(ctx, changes, out) || !sleep(ctx, min(watchRest*spent, watchRests)) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// drain reads the available events without waiting.
func (w *watcher) drain(buf []byte) error {
	raw, err := w.events.SyscallConn()
	if err != nil {
		return err
	}
	for range watchReads {
		n := 0
		if err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) }); err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		w.take(buf[:n])
	}
	return nil
}

// take handles the kernel's events: each is a fixed header, then a padded name.
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
		w.all()
	case mask&unix.IN_IGNORED != 0:
		w.forget(wd)
	case !known || name == "":
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		at := join(dir.path, name)
		w.note(at, Created)
		if mask&unix.IN_ISDIR != 0 {
			w.came(at)
		}
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		at := join(dir.path, name)
		w.note(at, Removed)
		if mask&(unix.IN_MOVED_FROM|unix.IN_ISDIR) == unix.IN_MOVED_FROM|unix.IN_ISDIR {
			w.went(at)
		}
	default:
		w.note(join(dir.path, name), Changed)
	}
}

func (w *watcher) forget(wd int32) {
	w.memory -= len(w.watched[wd].path)
	delete(w.watched, wd)
}

func (w *watcher) came(dir string) {
	if w.fresh[dir] = struct{}{}; len(w.fresh) > watchCame {
		w.all()
	}
}

func (w *watcher) went(dir string) {
	if w.gone[dir] = w.round; len(w.gone) > watchWent {
		w.all()
	}
}

// all queues a scan of everything, if single changes aren't known.
func (w *watcher) all() {
	w.todo, w.queue = nil, 0
	w.fresh = map[string]struct{}{"": {}}
	w.gone = map[string]int{"": w.round}
}

// lookAgain watches new directories, and forgets those that are gone and did not appear elsewhere,
// where they have the same watch.
func (w *watcher) lookAgain(ctx context.Context) {
	for _, dir := range topmost(w.fresh) {
		w.push(dir)
	}
	clear(w.fresh)
	if len(w.todo) == 0 && len(w.gone) == 0 {
		return
	}
	b := budget.New(ctx, budget.Limits{Steps: watchSteps, Time: w.time})
	defer b.Close()
	w.round++
	if err := w.look(b, true); err != nil {
		w.lost = true
		clear(w.gone)
	}
	if len(w.todo) > 0 {
		return
	}
	for wd, dir := range w.watched {
		if w.left(dir) {
			w.unwatch(wd)
		}
	}
	clear(w.gone)
}

// topmost returns the paths that aren't below any other of them.
func topmost(dirs map[string]struct{}) (top []string) {
	for _, dir := range slices.SortedFunc(maps.Keys(dirs), byElements) {
		if len(top) == 0 || !under(dir, top[len(top)-1]) {
			top = append(top, dir)
		}
	}
	return top
}

// byElements sorts a directory right before everything below it.
func byElements(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}

func under(name, dir string) bool { return dir == "" || name == dir || hasDir(name, dir) }

// left reports whether the known path of a directory is from before a move.
func (w *watcher) left(dir watchedDir) bool {
	for gone, round := range w.gone {
		if dir.round <= round && under(dir.path, gone) {
			return true
		}
	}
	return false
}

func (w *watcher) unwatch(wd int32) {
	if raw, err := w.events.SyscallConn(); err == nil {
		_ = raw.Control(func(in uintptr) { _, _ = unix.InotifyRmWatch(int(in), uint32(wd)) })
	}
	w.forget(wd)
}

// note merges the changes of one path. A path that was both created and removed was replaced or is
// gone; a stat decides when the change is sent.
func (w *watcher) note(name string, op Op) {
	was, there := w.pending[name]
	switch {
	case !there && (len(w.pending) >= watchPending || w.noted > watchMemory):
		w.lost = true
		return
	case !there:
		w.order = append(w.order, name)
		w.noted += len(name)
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

// changes returns the changes since the last call.
func (w *watcher) changes() []Change {
	changes := make([]Change, 0, len(w.order)+1)
	if w.lost {
		changes = append(changes, Change{Op: Overflow})
	}
	for _, name := range w.order {
		op := w.pending[name]
		if op == replaced {
			op = w.now(name)
		}
		changes = append(changes, Change{Path: w.paths.Display(join(w.rel, name)), Op: op})
	}
	w.lost, w.order, w.noted = false, nil, 0
	clear(w.pending)
	return changes
}

func deliver(ctx context.Context, changes []Change, out chan<- Change) bool {
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
	fd, err := beneath.OpenBelow(int(w.base.Fd()), strings.TrimSuffix(dir, "/"), sys.Place|unix.O_DIRECTORY)
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

// watches are the watches of one FS, so that Close can end them.
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
