package beneath

import (
	"bytes"
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
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
	buf := direntBuffers.Get().(*[]byte)
	defer direntBuffers.Put(buf)
	for {
		n, err := unix.Getdents(dir, *buf)
		if err == unix.EINTR { //nolint:errorlint // an errno, compared as such
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		if !visitEntries(dir, (*buf)[:n], visit) {
			return nil
		}
	}
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
