package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/filewire"
)

const (
	watched = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
	gone = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT
)

// watcher watches a directory. Events that the host doesn't read yet stay in the kernel's queue, which is bounded and
// reports an overflow.
type watcher struct {
	w      *worker
	queue  int // of inotify
	events *os.File
	root   string
	top    int            // watch of the directory itself
	names  map[int]string // directories of the watches, relative to the root, with a "/" at the end

	found map[string]bool // new files that were found before their events came
	last  filewire.Event  // the last event sent, to drop repetitions
	temp  uint32          // cookie of a file of ours that is renamed to its target
}

func (w *worker) watch(path string) error {
	queue, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	events := os.NewFile(uintptr(queue), "")
	defer events.Close()
	t := &watcher{w: w, queue: queue, events: events, root: strings.TrimRight(path, "/") + "/", names: map[int]string{}, found: map[string]bool{}}
	if t.top, err = unix.InotifyAddWatch(queue, t.root, watched); err != nil {
		return err
	}
	t.names[t.top] = ""
	if err := t.addBelow("", false); err != nil {
		return err
	}
	item, err := describe(unix.AT_FDCWD, t.root, true, false)
	if err != nil {
		return err
	}
	if err := errors.Join(w.PutJSON(filewire.IsItem, item), w.Flush()); err != nil {
		return err
	}
	return t.follow()
}

// follow reports changes until the directory is gone or the host ends it.
func (t *watcher) follow() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := t.events.Read(buf)
		if err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			var head unix.InotifyEvent
			_, _ = binary.Decode(rest, binary.NativeEndian, &head)
			end := unix.SizeofInotifyEvent + int(head.Len)
			name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00"))
			rest = rest[end:]
			if ended, err := t.take(&head, name); ended || err != nil {
				return err
			}
		}
		t.last = filewire.Event{}
		if len(t.found) > 0 && isEmpty(t.queue) {
			clear(t.found)
		}
		if err := t.w.Flush(); err != nil {
			return err
		}
	}
}

// isEmpty reports whether the queue is empty, so that further events are newer.
func isEmpty(queue int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(queue), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}

// take handles one event of the kernel.
func (t *watcher) take(head *unix.InotifyEvent, name string) (ended bool, err error) {
	if head.Mask&unix.IN_Q_OVERFLOW != 0 {
		return false, errors.Join(t.send(filewire.Lost, "", false), t.addBelow("", false))
	}
	prefix, known := t.names[int(head.Wd)]
	switch {
	case !known:
		return false, nil
	case head.Mask&gone != 0 && int(head.Wd) == t.top:
		return true, t.send(filewire.Removed, "", true)
	case head.Mask&unix.IN_IGNORED != 0:
		delete(t.names, int(head.Wd))
		return false, nil
	case name == "" || head.Mask&gone != 0: // of a directory below: its parent reports it, too
		return false, nil
	}
	return false, t.change(head, name, prefix+name)
}

// change reports one change of a name in a directory.
func (t *watcher) change(head *unix.InotifyEvent, base, path string) error {
	dir := head.Mask&unix.IN_ISDIR != 0
	if strings.HasPrefix(base, filewire.TempPrefix) {
		if head.Mask&unix.IN_MOVED_FROM != 0 {
			t.temp = head.Cookie
		}
		return nil
	}
	switch {
	case head.Mask&unix.IN_CREATE != 0:
		return t.appeared(path, dir, false)
	case head.Mask&unix.IN_MOVED_TO != 0:
		return t.appeared(path, dir, head.Cookie == t.temp)
	case head.Mask&unix.IN_MODIFY != 0:
		return t.send(filewire.Written, path, dir)
	case head.Mask&unix.IN_ATTRIB != 0:
		return t.send(filewire.ModeChanged, path, dir)
	case head.Mask&unix.IN_DELETE != 0:
		return t.send(filewire.Removed, path, dir)
	}
	if dir {
		t.forget(path + "/")
	}
	return t.send(filewire.Renamed, path, dir)
}

// appeared reports a new name, and the existing entries of a new directory.
func (t *watcher) appeared(path string, dir, written bool) error {
	if t.found[path] {
		delete(t.found, path)
		return nil
	}
	err := t.send(filewire.Created, path, dir)
	if written {
		err = errors.Join(err, t.send(filewire.Written, path, false))
	}
	if err == nil && dir && t.w.ask.Recursive {
		err = t.add(path+"/", true)
	}
	return err
}

func (t *watcher) send(kind, path string, dir bool) error {
	event := filewire.Event{Kind: kind, Name: []byte(path), Dir: dir}
	if event.Kind == t.last.Kind && bytes.Equal(event.Name, t.last.Name) || len(path) > filewire.MaxPath {
		return nil
	}
	t.last = event
	return t.w.PutJSON(filewire.IsEvent, &event)
}

// forget ends the watches of a directory that has moved away, and of all below it.
func (t *watcher) forget(prefix string) {
	for watch, name := range t.names {
		if strings.HasPrefix(name, prefix) {
			_, _ = unix.InotifyRmWatch(t.queue, uint32(watch))
			delete(t.names, watch)
		}
	}
}

// add watches a directory and those below it. It skips missing and unreadable ones. It watches each before reading it,
// so that it misses nothing in between.
func (t *watcher) add(prefix string, report bool) error {
	watch, err := unix.InotifyAddWatch(t.queue, t.root+prefix, watched|unix.IN_DONT_FOLLOW)
	switch {
	case err == unix.ENOSPC || err == unix.ENOMEM:
		return errLimited
	case err != nil:
		return nil
	}
	t.names[watch] = prefix
	if len(t.names) > t.w.ask.Limit {
		return errLimited
	}
	return t.addBelow(prefix, report)
}

func (t *watcher) addBelow(prefix string, report bool) error {
	if !t.w.ask.Recursive {
		return nil
	}
	dir, err := open(unix.AT_FDCWD, t.root+prefix, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if err := t.addEntry(dir, prefix, name, report); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// addEntry reports an entry of a new directory. If the entry's own event is still to come, that event is dropped.
func (t *watcher) addEntry(dir *os.File, prefix, name string, report bool) error {
	var st unix.Stat_t
	if unix.Fstatat(fd(dir), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil // gone meanwhile
	}
	path := prefix + name
	if report && !strings.HasPrefix(name, filewire.TempPrefix) {
		if len(t.found) < maxHeld/filewire.MaxPath {
			t.found[path] = true
		}
		err := t.send(filewire.Created, path, isDir(st.Mode))
		if isRegular(st.Mode) && st.Size > 0 {
			err = errors.Join(err, t.send(filewire.Written, path, false))
		}
		if err != nil {
			return err
		}
	}
	if isDir(st.Mode) {
		return t.add(path+"/", report)
	}
	return nil
}
