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

// share gives fd, an empty file, the content of the wanted one, if the twin has
// it at the same path and it is known to be the same, and says whether it did.
func (t *twin) share(fd int, w wanted) bool {
	if t == nil || t.off.Load() || w.entry.size == 0 {
		return false
	}
	dir, err := beneath.OpenBelow(int(t.store.top.Fd()), w.at.path(""), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	src, err := beneath.OpenAt(dir, w.entry.name, unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer unix.Close(src)
	if !t.holds(src, w.entry) {
		return false
	}
	if err := cloneFile(fd, src); err != nil {
		t.off.Store(true)
		return false
	}
	if t.holds(src, w.entry) {
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
	found, ok := t.store.cache.lookup(stampOf(&st))
	return ok && found.hash == e.hash && found.list == e.list
}
