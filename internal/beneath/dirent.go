package beneath

import (
	"bytes"
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/internal/sys"
)

// Entry is one name of a directory. Name is valid only until the visitor returns, because its
// buffer is reused.
type Entry struct {
	Name string
	Type uint8 // unix.DT_*; DT_UNKNOWN only if the entry is already gone
}

const direntLength = 16 // after two words, on every system

var direntBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// ReadDir visits the entries of the directory that dir is open on, from its current position, until
// visit returns false. It skips "." and "..". It doesn't open or stat an entry unless the file
// system doesn't report its type.
func ReadDir(dir int, visit func(Entry) bool) error {
	for {
		more, err := ReadSome(dir, visit)
		if err != nil || !more {
			return err
		}
	}
}

// ReadSome is like ReadDir for as many entries as the kernel returns at once, a few thousand at
// most. more is false at the end of the directory, and if visit returns false.
func ReadSome(dir int, visit func(Entry) bool) (more bool, err error) {
	buf := direntBuffers.Get().(*[]byte)
	defer direntBuffers.Put(buf)
	n, err := retry.Interrupted(func() (int, error) { return sys.Getdents(dir, *buf) })
	return err == nil && n > 0 && visitEntries(dir, (*buf)[:n], visit), err
}

func visitEntries(dir int, buf []byte, visit func(Entry) bool) bool {
	for len(buf) >= sys.DirentName {
		size := int(binary.NativeEndian.Uint16(buf[direntLength:]))
		if size < sys.DirentName || size > len(buf) {
			return true
		}
		name := buf[sys.DirentName:size]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		e := Entry{Name: unsafe.String(unsafe.SliceData(name), len(name)), Type: buf[sys.DirentType]}
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

// typeOf returns the type of an entry whose type getdents didn't report.
func typeOf(dir int, name string) uint8 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.DT_UNKNOWN
	}
	return uint8(st.Mode & unix.S_IFMT >> 12)
}
