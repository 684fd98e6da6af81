package podman

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// logKeeper links conmon's file, so that its content stays when conmon replaces it.
type logKeeper struct {
	path   string
	events *os.File // of inotify
	missed int      // replaced files since the last look
}

func newLogKeeper(path string) (*logKeeper, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	k := &logKeeper{path: path, events: os.NewFile(uintptr(fd), "inotify")}
	if _, err = unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_MOVED_TO|unix.IN_CREATE|unix.IN_ONLYDIR); err == nil {
		err = k.look()
	}
	if err != nil {
		k.events.Close()
		return nil, err
	}
	return k, nil
}

// run looks after each replacement, until end is closed or the directory is removed.
func (k *logKeeper) run(end <-chan struct{}) {
	done := make(chan struct{})
	defer k.events.Close()
	defer close(done)
	go func() {
		select {
		case <-end:
			k.events.Close()
		case <-done:
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := k.events.Read(buf)
		if err != nil || !k.count(buf[:n]) {
			return
		}
		if err := k.look(); err != nil {
			return
		}
	}
}

// count counts the replacements among the events. It returns false if the directory is gone.
func (k *logKeeper) count(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask, size := binary.NativeEndian.Uint32(events[4:]), int(binary.NativeEndian.Uint32(events[12:]))
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], []byte{0})
		switch {
		case mask&unix.IN_IGNORED != 0:
			return false
		case mask&unix.IN_Q_OVERFLOW != 0:
			k.missed += 2
		case mask&unix.IN_MOVED_TO != 0 && string(name) == filepath.Base(k.path):
			k.missed++
		}
		events = events[unix.SizeofInotifyEvent+size:]
	}
	return true
}

// look links the current file, and keeps the former one if it directly precedes it. Several processes may look at the
// same companion.
func (k *logKeeper) look() error {
	dir, err := os.Open(filepath.Dir(k.path)) // only now: a watch of an open directory doesn't end with its removal
	if err != nil {
		return err
	}
	defer dir.Close() // with the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	missed := k.missed
	k.missed = 0
	now, err := os.Lstat(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not yet
	}
	held, heldErr := os.Lstat(k.path + heldLog)
	if err != nil || heldErr == nil && os.SameFile(now, held) {
		return err
	}
	switch {
	case heldErr == nil && missed <= 1:
		err = os.Rename(k.path+heldLog, k.path+formerLog)
	case heldErr == nil: // between the held file and the current one there were others
		err = errors.Join(os.Remove(k.path+heldLog), ignoreMissing(os.Remove(k.path+formerLog)))
	}
	return errors.Join(err, os.Link(k.path, k.path+heldLog))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
