package snapshot

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
)

// twin is another workspace, some of whose files have the content that is to be
// written here: the two can share their blocks where the file system can do that.
type twin struct {
	store *Store
	off   atomic.Bool // it can't
}

// cloneFile makes dst share the blocks of src. Tests replace it where the file
// system of the machine can't.
var cloneFile = unix.IoctlFileClone

// open opens a directory of the twin, or gives -1.
func (t *twin) open(path string) int {
	if t == nil || t.off.Load() {
		return -1
	}
	dir, err := beneath.OpenBelow(int(t.store.top.Fd()), path, unix.O_PATH|unix.O_DIRECTORY)
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

// share gives fd, an empty file, the content of e, if the twin has it in dir under
// the same name and it is known to be the same, and says whether it did.
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
	_ = unix.Ftruncate(fd, 0) // it changed meanwhile; what is left would be written over
	return false
}

// holds says that an open file has the content of e, by its times as they were
// when it was read: a program can't set them back.
func (t *twin) holds(fd int, e *entry) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	found, _, ok := t.store.cache.find(stampOf(&st))
	return ok && found.hash == e.hash && found.list == e.list
}
