package wasm

import (
	"context"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	experimental "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wisbox/wisbox/evaltool"
)

// Limits of one file system.
const (
	maxNodes = 4096 // files and directories
	maxOpens = 256  // of them open at once
)

// memoryFiles is the file system of one instance: directories and files in
// memory, no links, no times. The bytes that a program writes are bounded.
type memoryFiles struct {
	experimental.UnimplementedFS

	mu    sync.Mutex
	nodes map[string]*node // by clean path; "." is the root
	room  int64            // maximum bytes of programs
	left  int64            // bytes that may still be written
	inode sys.Inode

	host     hostText // reads a file of the host; nil: there are none
	list     hostText // lists a directory of the host; likewise
	hostLeft int64    // bytes that may still be read from the host
	meter    *meter   // of the current run, which pays for the work; or nil
	opens    int      // files and directories that are open
}

// hostText returns a text of the host, of at most that many bytes.
type hostText func(ctx context.Context, path string, most int64) (string, experimental.Errno)

type node struct {
	inode sys.Inode
	dir   bool
	data  []byte
	text  string // of a given file that wasn't written since
	opens int    // number of open handles
	gone  bool   // it was unlinked
}

func newFiles(room int64, dirs ...string) *memoryFiles {
	f := &memoryFiles{nodes: map[string]*node{}, room: room, left: room}
	f.add(".", &node{dir: true})
	for _, dir := range dirs {
		f.give(dir, &node{dir: true})
	}
	return f
}

func (f *memoryFiles) add(name string, n *node) {
	f.inode++
	n.inode = f.inode
	f.nodes[name] = n
}

// give adds a node of the host, with the directories above it.
func (f *memoryFiles) give(name string, n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if f.nodes[dir] == nil {
			f.add(dir, &node{dir: true})
		}
	}
	f.add(name, n)
}

// remove removes a tree, for the host.
func (f *memoryFiles) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.nodes, func(key string, _ *node) bool { return key == name || strings.HasPrefix(key, name+"/") })
}

// content returns the current content of a file.
func (f *memoryFiles) content(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		return n.data
	}
	return nil
}

// begin starts a run: files that an earlier run left open are closed.
func (f *memoryFiles) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hostLeft, f.left, f.opens = evaltool.MaxReadBytes, f.room, 0
	for _, n := range f.nodes {
		n.opens = 0
		f.left -= int64(len(n.data))
	}
}

// attach connects the files to a run, whose context applies to reading host files.
func (f *memoryFiles) attach(m *meter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.meter = m
}

// full reports whether the maximum number of files is open.
func (f *memoryFiles) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opens >= maxOpens
}

// pay charges work for the program, before it is done. The caller holds mu.
func (f *memoryFiles) pay(units int64) {
	if f.meter != nil {
		f.meter.spend(units)
	}
}

// openHost opens a file of the host for reading. The caller holds mu.
func (f *memoryFiles) openHost(name string, from hostText) (experimental.File, experimental.Errno) {
	if from == nil || f.meter == nil {
		return nil, experimental.ENOENT
	}
	f.pay(priceHost)
	text, errno := from(f.meter.ctx, name, f.hostLeft)
	if errno != 0 {
		return nil, errno
	}
	f.hostLeft -= int64(len(text))
	f.opens++
	return &openFile{files: f, node: &node{text: text, opens: 1}}, 0
}

func clean(name string) string { return path.Clean(strings.TrimLeft(name, "/")) }

// lookup returns a node, or the error if there is none. The caller holds mu.
func (f *memoryFiles) lookup(name string) (*node, experimental.Errno) {
	if n := f.nodes[name]; n != nil {
		return n, 0
	}
	if parent := f.nodes[path.Dir(name)]; parent != nil && !parent.dir {
		return nil, experimental.ENOTDIR
	}
	return nil, experimental.ENOENT
}

// OpenFile implements experimental/sys.FS.
func (f *memoryFiles) OpenFile(name string, flag experimental.Oflag, _ fs.FileMode) (experimental.File, experimental.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pay(priceOpen)
	name = clean(name)
	if path, from, ok := f.hostPath(name); ok {
		return f.openHost(path, from)
	}
	writes := flag&(experimental.O_RDWR|experimental.O_WRONLY) != 0
	n, errno := f.lookup(name)
	if errno == experimental.ENOENT && flag&experimental.O_CREAT != 0 {
		n, errno = f.create(name, &node{})
	} else if errno == 0 && flag&experimental.O_CREAT != 0 && flag&experimental.O_EXCL != 0 {
		errno = experimental.EEXIST
	}
	switch {
	case errno != 0:
		return nil, errno
	case n.dir && writes:
		return nil, experimental.EISDIR
	case n.dir:
		f.opens++
		return &openDir{files: f, name: name, node: n}, 0
	case flag&experimental.O_DIRECTORY != 0:
		return nil, experimental.ENOTDIR
	}
	open := &openFile{files: f, node: n, writes: writes, appends: flag&experimental.O_APPEND != 0}
	if writes && flag&experimental.O_TRUNC != 0 {
		errno = open.resize(0)
	}
	if errno != 0 {
		return nil, errno
	}
	f.opens++
	n.opens++
	return open, 0
}

// create adds a node below a directory. The caller holds mu.
func (f *memoryFiles) create(name string, n *node) (*node, experimental.Errno) {
	if f.nodes[name] != nil {
		return nil, experimental.EEXIST
	}
	if parent, errno := f.lookup(path.Dir(name)); errno != 0 || !parent.dir {
		return nil, max(errno, experimental.ENOENT)
	}
	if len(f.nodes) >= maxNodes || len(name) > 1024 {
		return nil, experimental.EIO
	}
	f.add(name, n)
	return n, 0
}

// Stat implements experimental/sys.FS.
func (f *memoryFiles) Stat(name string) (sys.Stat_t, experimental.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, errno := f.lookup(clean(name))
	if errno != 0 {
		return sys.Stat_t{}, errno
	}
	return n.stat(), 0
}

// Lstat implements experimental/sys.FS.
func (f *memoryFiles) Lstat(name string) (sys.Stat_t, experimental.Errno) { return f.Stat(name) }

// Readlink implements experimental/sys.FS: there are no links.
func (f *memoryFiles) Readlink(name string) (string, experimental.Errno) {
	if _, errno := f.Stat(name); errno != 0 {
		return "", errno
	}
	return "", experimental.EINVAL
}

func (n *node) stat() sys.Stat_t {
	st := sys.Stat_t{Ino: n.inode, Mode: 0o644, Nlink: 1, Size: n.size()}
	if n.dir {
		st.Mode = fs.ModeDir | 0o755
	}
	return st
}

func (n *node) size() int64 { return int64(len(n.data) + len(n.text)) }

// Mkdir implements experimental/sys.FS.
func (f *memoryFiles) Mkdir(name string, _ fs.FileMode) experimental.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, errno := f.create(clean(name), &node{dir: true})
	return errno
}

// Rmdir implements experimental/sys.FS.
func (f *memoryFiles) Rmdir(name string) experimental.Errno { return f.unlink(clean(name), true) }

// Unlink implements experimental/sys.FS.
func (f *memoryFiles) Unlink(name string) experimental.Errno { return f.unlink(clean(name), false) }

func (f *memoryFiles) unlink(name string, dir bool) experimental.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, errno := f.lookup(name)
	switch {
	case errno != 0:
		return errno
	case n.dir && !dir:
		return experimental.EISDIR
	case !n.dir && dir:
		return experimental.ENOTDIR
	case n.dir && (name == "." || len(f.children(name)) > 0):
		return experimental.ENOTEMPTY
	}
	f.unname(name, n)
	return 0
}

// unname removes a node's name. The caller holds mu.
func (f *memoryFiles) unname(name string, n *node) {
	delete(f.nodes, name)
	n.gone = true
	f.reclaim(n)
}

// reclaim frees the bytes of an unreachable file: an open file keeps them even without a name. The caller holds mu.
func (f *memoryFiles) reclaim(n *node) {
	if n.gone && n.opens == 0 {
		f.left += int64(len(n.data))
		n.data = nil
	}
}

// Rename implements experimental/sys.FS.
func (f *memoryFiles) Rename(from, to string) experimental.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, to = clean(from), clean(to)
	n, errno := f.lookup(from)
	if errno != 0 {
		return errno
	}
	if n.dir || from == to {
		return renameDir(n, from, to)
	}
	if old := f.nodes[to]; old != nil {
		if old.dir {
			return experimental.EISDIR
		}
		f.unname(to, old)
	}
	if _, errno := f.create(to, n); errno != 0 {
		return errno
	}
	delete(f.nodes, from)
	return 0
}

// renameDir refuses to move directories: the private file system of an evaluation doesn't need that.
func renameDir(n *node, from, to string) experimental.Errno {
	if n.dir && from != to {
		return experimental.ENOTSUP
	}
	return 0
}

// Utimens implements experimental/sys.FS: there are no times.
func (f *memoryFiles) Utimens(name string, _, _ int64) experimental.Errno {
	_, errno := f.Stat(name)
	return errno
}

// Chmod implements experimental/sys.FS: there are no permissions.
func (f *memoryFiles) Chmod(name string, _ fs.FileMode) experimental.Errno {
	_, errno := f.Stat(name)
	return errno
}

// children returns the names in a directory, sorted. The caller holds mu.
func (f *memoryFiles) children(dir string) []string {
	f.pay(int64(len(f.nodes)) * priceEntry)
	var names []string
	for name := range f.nodes {
		if name != "." && path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	return names
}
