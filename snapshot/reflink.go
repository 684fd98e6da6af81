package snapshot

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/sys"
)

// twin is another workspace with files of the same content. The two can share their blocks if
// the file system supports that.
type twin struct {
	store *Store
	off   atomic.Bool // the file system doesn't support it
}

// cloneFile makes dst share the blocks of src. Tests replace it if the
// machine's file system doesn't support that.
var cloneFile = sys.CloneFile

// open opens a directory of the twin, or returns -1.
func (t *twin) open(path string) int {
	if t == nil || t.off.Load() {
		return -1
	}
	dir, err := beneath.OpenBelow(int(t.store.top.Fd()), path, sys.Place|unix.O_DIRECTORY)
	if err != nil {
		return -1
	}
	return dir
}

func closeIf(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// share clones the content of e into fd, an empty file, if the twin has the same content in dir
// under the same name. It reports whether it did.
func (t *twin) share(fd, dir int, e *entry) bool {
	if dir < 0 || t.off.Load() || e.size == 0 {
		return false
	}
	src, err := beneath.OpenAt(dir, e.name, unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer unix.Close(src)
	if !t.holds(src, e) {
		return false
	}
	if err := cloneFile(fd, src); err != nil {
		t.off.Store(true)
		return false
	}
	if t.holds(src, e) {
		return true
	}
	_ = unix.Ftruncate(fd, 0) // it changed meanwhile; don't leave parts of it
	return false
}

// holds reports whether an open file has the content of e, by the times from when it was read: a
// program can't set them back.
func (t *twin) holds(fd int, e *entry) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	found, _, ok := t.store.cache.find(stampOf(&st))
	return ok && found.hash == e.hash && found.list == e.list
}
