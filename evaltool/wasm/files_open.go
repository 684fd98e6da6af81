package wasm

import (
	"bytes"
	"io"
	"io/fs"
	"math"
	"path"

	experimental "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// fileOffset is an alias so that go vet doesn't mistake the Seek methods for io.Seeker's, whose results differ.
type fileOffset = int64

// openDir is an open directory; its listing is that of the first read.
type openDir struct {
	experimental.DirFile

	files *memoryFiles
	name  string
	node  *node
	names []string
	begun bool

	closed bool
}

func (d *openDir) Dev() (uint64, experimental.Errno)      { return 0, 0 }
func (d *openDir) Ino() (sys.Inode, experimental.Errno)   { return d.node.inode, 0 }
func (d *openDir) Stat() (sys.Stat_t, experimental.Errno) { return d.node.stat(), 0 }
func (d *openDir) Sync() experimental.Errno               { return 0 }
func (d *openDir) Datasync() experimental.Errno           { return 0 }
func (d *openDir) Utimens(_, _ int64) experimental.Errno  { return 0 }
func (d *openDir) Seek(offset fileOffset, whence int) (fileOffset, experimental.Errno) {
	if offset != 0 || whence != io.SeekStart {
		return 0, experimental.EISDIR
	}
	d.begun = false
	return 0, 0
}

// Close implements experimental/sys.File.
func (d *openDir) Close() experimental.Errno {
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	if !d.closed {
		d.closed = true
		d.files.opens--
	}
	return 0
}

// Readdir implements experimental/sys.File.
func (d *openDir) Readdir(n int) ([]experimental.Dirent, experimental.Errno) {
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	if !d.begun {
		d.names, d.begun = d.files.children(d.name), true
	}
	if n < 0 || n > len(d.names) {
		n = len(d.names)
	}
	d.files.pay(int64(n) * priceEntry)
	entries := make([]experimental.Dirent, 0, n)
	for _, name := range d.names[:n] {
		entry := experimental.Dirent{Name: name}
		if child := d.files.nodes[path.Join(d.name, name)]; child != nil {
			entry.Ino, entry.Type = child.inode, child.stat().Mode&fs.ModeType
		}
		entries = append(entries, entry)
	}
	d.names = d.names[n:]
	return entries, 0
}

// openFile is an open file of the memory file system.
type openFile struct {
	experimental.UnimplementedFile

	files           *memoryFiles
	node            *node
	at              int64
	writes, appends bool
	closed          bool
}

func (o *openFile) Ino() (sys.Inode, experimental.Errno)  { return o.node.inode, 0 }
func (o *openFile) IsDir() (bool, experimental.Errno)     { return false, 0 }
func (o *openFile) IsAppend() bool                        { return o.appends }
func (o *openFile) Sync() experimental.Errno              { return 0 }
func (o *openFile) Datasync() experimental.Errno          { return 0 }
func (o *openFile) Utimens(_, _ int64) experimental.Errno { return 0 }

// SetAppend implements experimental/sys.File.
func (o *openFile) SetAppend(enable bool) experimental.Errno {
	o.appends = enable
	return 0
}

// Stat implements experimental/sys.File.
func (o *openFile) Stat() (sys.Stat_t, experimental.Errno) {
	o.files.mu.Lock()
	defer o.files.mu.Unlock()
	return o.node.stat(), 0
}

// Read implements experimental/sys.File.
func (o *openFile) Read(buf []byte) (int, experimental.Errno) {
	n, errno := o.Pread(buf, o.at)
	o.at += int64(n)
	return n, errno
}

// Pread implements experimental/sys.File.
func (o *openFile) Pread(buf []byte, off int64) (int, experimental.Errno) {
	o.files.mu.Lock()
	defer o.files.mu.Unlock()
	if off < 0 {
		return 0, experimental.EINVAL
	}
	n := min(int64(len(buf)), o.node.size()-off)
	if n <= 0 {
		return 0, 0
	}
	o.files.pay(n / perUnit)
	if o.node.text != "" {
		return copy(buf, o.node.text[off:]), 0
	}
	return copy(buf, o.node.data[off:]), 0
}

// Seek implements experimental/sys.File.
func (o *openFile) Seek(offset fileOffset, whence int) (fileOffset, experimental.Errno) {
	o.files.mu.Lock()
	defer o.files.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.node.size()
	case io.SeekStart:
	default:
		return 0, experimental.EINVAL
	}
	if offset < 0 {
		return 0, experimental.EINVAL
	}
	o.at = offset
	return offset, 0
}

// Write implements experimental/sys.File.
func (o *openFile) Write(buf []byte) (int, experimental.Errno) {
	if o.appends {
		o.files.mu.Lock()
		o.at = o.node.size()
		o.files.mu.Unlock()
	}
	n, errno := o.Pwrite(buf, o.at)
	o.at += int64(n)
	return n, errno
}

// Pwrite implements experimental/sys.File.
func (o *openFile) Pwrite(buf []byte, off int64) (int, experimental.Errno) {
	o.files.mu.Lock()
	defer o.files.mu.Unlock()
	switch {
	case !o.writes:
		return 0, experimental.EBADF
	case off < 0 || off > math.MaxInt64-int64(len(buf)):
		return 0, experimental.EINVAL
	case len(buf) == 0: // write nothing, not even zeros up to off
		return 0, 0
	}
	o.files.pay(int64(len(buf)) / perUnit)
	if end := off + int64(len(buf)); end > o.node.size() {
		if errno := o.resize(end); errno != 0 {
			return 0, errno
		}
	}
	if errno := o.own(); errno != 0 {
		return 0, errno
	}
	return copy(o.node.data[off:], buf), 0
}

// Truncate implements experimental/sys.File.
func (o *openFile) Truncate(size int64) experimental.Errno {
	o.files.mu.Lock()
	defer o.files.mu.Unlock()
	if !o.writes {
		return experimental.EBADF
	}
	if size < 0 {
		return experimental.EINVAL
	}
	return o.resize(size)
}

// resize sets the file's size, within the remaining bytes. The caller holds mu.
func (o *openFile) resize(size int64) experimental.Errno {
	n := o.node
	if size == 0 {
		n.text = "" // the text need not be copied
	}
	if errno := o.own(); errno != 0 {
		return errno
	}
	grows := size - int64(len(n.data))
	if grows > o.files.left {
		return experimental.EIO
	}
	o.files.pay(resizing(n.data, size) / perUnit)
	o.files.left -= grows
	if grows > 0 {
		n.data = append(n.data, make([]byte, grows)...)
	} else {
		n.data = bytes.Clone(n.data[:size]) // free the rest
	}
	return 0
}

// resizing returns how many bytes a resize to that size clears or copies.
func resizing(data []byte, size int64) int64 {
	if size < int64(len(data)) || size > int64(cap(data)) {
		return size
	}
	return size - int64(len(data))
}

// own copies a given text before it is changed. The caller holds mu.
func (o *openFile) own() experimental.Errno {
	given := int64(len(o.node.text))
	if given > o.files.left {
		return experimental.EIO
	}
	if given > 0 {
		o.files.pay(given / perUnit)
		o.files.left -= given
		o.node.data, o.node.text = []byte(o.node.text), ""
	}
	return 0
}

// Close implements experimental/sys.File.
func (o *openFile) Close() experimental.Errno {
	o.files.mu.Lock()
	defer o.files.mu.Unlock()
	if o.closed {
		return 0
	}
	o.closed = true
	o.files.opens--
	o.node.opens--
	o.files.reclaim(o.node)
	return 0
}
