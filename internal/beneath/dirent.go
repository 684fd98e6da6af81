package beneath

import (
	"bytes"
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

// Entry is one name of a directory. Name is only good until the visitor returns:
// it lies in a buffer that is used again.
type Entry struct {
	Name string
	Type uint8 // unix.DT_*; never DT_UNKNOWN unless the entry is gone already
}

const direntHeader = 19 // ino 8, off 8, reclen 2, type 1

var direntBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// ReadDir visits the entries of the directory that dir is open on, from where
// it stands, until visit says false. "." and ".." are left out. No entry is
// opened or stat'ed unless the file system doesn't tell its type.
func ReadDir(dir int, visit func(Entry) bool) error {
	for {
		more, err := ReadSome(dir, visit)
		if err != nil || !more {
			return err
		}
	}
}

// ReadSome is ReadDir for as many entries as the kernel gives at once, a few
// thousand at most. more is false when there are none, and when visit says false.
func ReadSome(dir int, visit func(Entry) bool) (more bool, err error) {
	buf := direntBuffers.Get().(*[]byte)
	defer direntBuffers.Put(buf)
	n, err := retry.Interrupted(func() (int, error) { return unix.Getdents(dir, *buf) })
	return err == nil && n > 0 && visitEntries(dir, (*buf)[:n], visit), err
}

func visitEntries(dir int, buf []byte, visit func(Entry) bool) bool {
	for len(buf) >= direntHeader {
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		if size < direntHeader || size > len(buf) {
			return true
		}
		name := buf[direntHeader:size]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		e := Entry{Name: unsafe.String(unsafe.SliceData(name), len(name)), Type: buf[18]}
		buf = buf[size:]
		if e.Name == "." || e.Name == ".." {
			continue
		}
		if e.Type == unix.DT_UNKNOWN {
			e.Type = typeOf(dir, e.Name)
		}
		if !visit(e) {
			return false
		}
	}
	return true
}

// typeOf asks for the type where getdents didn't tell.
func typeOf(dir int, name string) uint8 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.DT_UNKNOWN
	}
	return uint8(st.Mode & unix.S_IFMT >> 12)
}
