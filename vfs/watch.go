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
	watchMemory  = 4 << 20               // bytes of the paths of these, of changes that wait, and of directories to look at
	watchGather  = 20 * time.Millisecond // changes of one path within it are one
	watchPending = 10_000                // paths, before an overflow
	watchQueue   = 256                   // changes that wait for a slow receiver
	watchMask    = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
)

// A program makes and moves directories at no cost, and a watch has to look at each
// that is new to it. So it looks once for all that happened in a while, within a
// budget, and rests watchRest times as long as it worked.
const (
	watchSteps = 200_000                // entries looked at in one go; a directory counts as watchOpen
	watchOpen  = 8                      // steps
	watchTime  = 200 * time.Millisecond // of one go
	watchRest  = 9
	watchRests = 2 * time.Second // at most
	watchCame  = 1_000           // directories that came in one go: with more, all is looked at again
	watchWent  = 100             // likewise that were moved away
	watchReads = 256             // of 64 KiB in one go: more than the kernel keeps
)

// Watch tells of changes below the directory path, by tools and by programs,
// until ctx ends or the FS is closed; then the channel closes. Directories that
// are made later are watched too, at most 8,192 in all; links are not followed.
// Changes close together become one event; where a program makes more than
// can be followed at little cost, they are an Overflow. It holds one descriptor.
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
		return tool.Errorf(tool.Limit, "the host allows no more watches; end others first").Because(err)
	}
	return tool.AsError(err)
}

// watcher is one watch. It belongs to the goroutine that runs it. It speaks to
// inotify itself: the libraries know directories by paths, which a program swaps
// for links between a look and the call, and this one by what is open.
type watcher struct {
	base    *beneath.Handle
	paths   Grammar
	rel     string // base, as asked for
	events  *os.File
	stop    context.CancelFunc
	watched map[int32]watchedDir
	memory  int // bytes of the paths in watched
	pending map[string]Op
	order   []string
	noted   int // bytes of the paths in order
	lost    bool

	round int                 // looks at new directories, so far
	fresh map[string]struct{} // directories that came, to be looked at with all below
	todo  []string            // directories that a look has not reached yet
	queue int                 // bytes of the paths in todo
	gone  map[string]int      // directories that went, and in which round
}

// watchedDir is a directory by its watch.
type watchedDir struct {
	path  string // relative to base, as it was in round
	round int
}

func newWatcher(ctx context.Context, base *beneath.Handle, paths Grammar, rel string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		base: base, paths: paths, rel: rel, events: os.NewFile(uintptr(fd), "inotify"), watched: map[int32]watchedDir{},
		pending: map[string]Op{}, fresh: map[string]struct{}{}, gone: map[string]int{},
	}
	b := budget.New(ctx, budget.Limits{})
	defer b.Close()
	w.push("")
	if err := w.look(b, false); err != nil {
		return nil, errors.Join(err, w.events.Close())
	}
	return w, nil
}

// push has a directory looked at, with those below it.
func (w *watcher) push(dir string) {
	if w.queue > watchMemory {
		w.lost = true
		return
	}
	w.todo = append(w.todo, dir)
	w.queue += len(dir)
}

// look watches the directories of todo and those below them, as far as the budget
// reaches. With tell it notes what is there as created: it may have come before the
// watch. Only what is wrong with the base itself is an error.
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
		if entries++; entries > watchSteps { // it grows as it is read
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
	_ = b.Step(entries) // the next directory meets what this one has used up
	return err
}

// watch adds an open directory. One that is watched already keeps its watch and gets
// its name of now.
func (w *watcher) watch(fd int, dir string) error {
	// The name stands for the open directory itself, wherever it lies by now.
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

// run reads events, gathers them for a moment and sends what they come to.
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

// drain takes the events that are there, without waiting.
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

// all has everything looked at: what came and what went is not known one by one.
func (w *watcher) all() {
	w.todo, w.queue = nil, 0
	w.fresh = map[string]struct{}{"": {}}
	w.gone = map[string]int{"": w.round}
}

// lookAgain watches the directories that came, and lets go of those that went and
// did not come again elsewhere: these have the same watch there.
func (w *watcher) lookAgain(ctx context.Context) {
	for _, dir := range topmost(w.fresh) {
		w.push(dir)
	}
	clear(w.fresh)
	if len(w.todo) == 0 && len(w.gone) == 0 {
		return
	}
	b := budget.New(ctx, budget.Limits{Steps: watchSteps, Time: watchTime})
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

// topmost are the paths that don't lie below others of them.
func topmost(dirs map[string]struct{}) (top []string) {
	for _, dir := range slices.SortedFunc(maps.Keys(dirs), byElements) {
		if len(top) == 0 || !under(dir, top[len(top)-1]) {
			top = append(top, dir)
		}
	}
	return top
}

// byElements sorts a directory right before all that lies below it.
func byElements(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}

func under(name, dir string) bool { return dir == "" || name == dir || hasDir(name, dir) }

// left says that a directory is known by where it was before that was moved away.
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

// note merges what happened to one path: what is both made and removed was
// replaced, or is gone; which of them, a look says when it is sent.
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

// changes are what was noted since the last time.
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
