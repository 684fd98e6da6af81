// Package beneath reaches files below one directory that a hostile program
// writes to at the same time. It makes every host-side access to a workspace
// safe; it knows nothing of agents' path rules, versions or tools.
//
// A [Tree] opens by openat2 with RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS,
// RESOLVE_NO_XDEV and RESOLVE_NO_SYMLINKS, without blocking, and checks
// the file before it returns it. Links are not left to the kernel: the tree
// reads them one after the other and opens the place where they lead, again
// without following any. So each file has one true path, absolute links that
// are written from the program's point of view (/workspace/…) work, and a link
// swapped in between is refused. Where the kernel has no openat2, a path is opened element
// by element, each without following a link.
//
// Changes are made in a directory beside the tree that no program sees
// ([Staging]) and moved in by one rename between two descriptors.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// Tree is a directory and what lies below it. Its methods may be called from
// many goroutines at once.
type Tree struct {
	root  *os.Root
	dir   *os.File
	dev   uint64
	mount string
	plain bool // no openat2: element by element
}

// New makes a Tree of root. The text of an absolute link that begins with mount
// ("/workspace") counts as inside; with an empty mount every absolute link
// leaves. The tree keeps a descriptor of its own; root stays the caller's and
// must outlive the tree.
func New(root *os.Root, mount string) (*Tree, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open the tree's directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("look at the tree's directory: %w", err), dir.Close())
	}
	t := &Tree{root: root, dir: dir, dev: uint64(st.Dev), mount: strings.TrimSuffix(mount, "/")}
	t.plain = !hasOpenat2(int(dir.Fd()))
	return t, nil
}

// Close closes the tree's own descriptor.
func (t *Tree) Close() error { return t.dir.Close() }

// Dir returns the descriptor of the tree's top. The caller must not close it.
func (t *Tree) Dir() *os.File { return t.dir }

// Dev returns the device of everything in the tree.
func (t *Tree) Dev() uint64 { return t.dev }

// Leased reports whether err means that a file can't be opened because a program holds a lease on
// it (or, for a moment, because names change fast). Renaming, linking and removing a file don't
// open it, and so don't depend on that program.
func Leased(err error) bool { return errors.Is(err, unix.EAGAIN) }

// openNoLink opens rel without following a link: a link on the way is ELOOP.
func (t *Tree) openNoLink(rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	open := openat2
	if t.plain {
		open = openStepwise
	}
	fd, err := open(int(t.dir.Fd()), rel, flags|unix.O_NOFOLLOW)
	return noLink(fd, flags, err)
}

// noLink refuses a link that was opened with O_PATH, which Linux allows.
func noLink(fd, flags int, err error) (int, error) {
	if err != nil || flags&sys.Place == 0 {
		return fd, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = unix.ELOOP
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// readlink returns the text of the link at rel, and whether there is a link at all.
func (t *Tree) readlink(rel string) (text string, link bool, err error) {
	if t.plain {
		return t.plainReadlink(rel)
	}
	return readlink(int(t.dir.Fd()), rel)
}

func (t *Tree) plainReadlink(rel string) (string, bool, error) {
	info, err := t.root.Lstat(rel)
	if err != nil {
		return "", false, errnoOf(err)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return "", false, nil
	}
	text, err := t.root.Readlink(rel)
	return text, err == nil, errnoOf(err)
}
