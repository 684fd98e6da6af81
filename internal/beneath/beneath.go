// Package beneath reaches files below one directory that a hostile program
// writes at the same time. It is what makes every host-side access of a
// workspace safe; it knows nothing of agents' path rules, versions or tools.
//
// A [Tree] opens by openat2 with RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS,
// RESOLVE_NO_XDEV and RESOLVE_NO_SYMLINKS, without blocking, and looks at what
// it has got before it hands it out. Links are not left to the kernel: the tree
// reads them one after the other and opens the place where they lead, again
// without following any. So each file has one true path, absolute links that
// are written from the program's point of view (/workspace/…) work, and a link
// swapped in between is met by a refusal. Where the kernel has no openat2, the
// same steps go through [os.Root].
//
// Changes are made in a directory beside the tree that no program sees
// ([Staging]) and come in by one rename between two descriptors.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	_ "github.com/wisbox/wisbox/internal/beneath/internal/needs_linux_see_docs_install" // a build for another system ends here
	"github.com/wisbox/wisbox/internal/retry"
)

// Tree is a directory and what lies below it. Its methods may be called from
// many goroutines at once.
type Tree struct {
	root  *os.Root
	dir   *os.File
	dev   uint64
	mount string
	plain bool // no openat2: go through root
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

// Close gives the tree's own descriptor back.
func (t *Tree) Close() error { return t.dir.Close() }

// Dir is the descriptor of the tree's top. The caller must not close it.
func (t *Tree) Dir() *os.File { return t.dir }

// Dev is the device that everything in the tree lies on.
func (t *Tree) Dev() uint64 { return t.dev }

func hasOpenat2(dir int) bool {
	fd, err := openat2(dir, ".", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM)
	}
	_ = unix.Close(fd)
	return true
}

// openat2 opens rel below dir and follows no link on the way. What is renamed out
// of dir while the kernel opens it is EXDEV, as a mount is: as the file tools replace
// files so, it is looked up again, [maxTries] times. So is EAGAIN, which a rename may
// cause too; but that is also what a lease (fcntl F_SETLEASE) makes of an opening for
// as long as the program that holds it lives, and then it is the answer.
func openat2(dir int, rel string, flags int) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	}
	for range maxTries {
		fd, err = retry.Interrupted(func() (int, error) { return unix.Openat2(dir, rel, &how) })
		if err != unix.EAGAIN && err != unix.EXDEV { //nolint:errorlint // errno values, compared as such
			break
		}
	}
	return fd, err
}

// Leased says that err is the refusal of an opening because a program holds a lease on
// the file (or, for a moment, because names change fast). Renaming, linking and removing
// a file need no opening, and so no leave of that program.
func Leased(err error) bool { return errors.Is(err, unix.EAGAIN) }

// openNoLink opens rel without following a link: one on the way is ELOOP.
func (t *Tree) openNoLink(rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	if !t.plain {
		fd, err := openat2(int(t.dir.Fd()), rel, flags|unix.O_NOFOLLOW)
		return noLink(fd, flags, err)
	}
	f, err := t.root.OpenFile(rel, flags, 0)
	if err != nil {
		return -1, errnoOf(err)
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// noLink refuses a link that was opened as a place (O_PATH), which the kernel
// allows.
func noLink(fd, flags int, err error) (int, error) {
	if err != nil || flags&unix.O_PATH == 0 {
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

// readlink is the text of the link at rel, and whether there is a link at all.
func (t *Tree) readlink(rel string) (text string, link bool, err error) {
	if t.plain {
		return t.plainReadlink(rel)
	}
	fd, err := openat2(int(t.dir.Fd()), rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", false, err
	}
	defer unix.Close(fd)
	return readlinkFD(fd)
}

func readlinkFD(fd int) (text string, link bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, nil
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", false, err
	}
	return string(buf[:n]), true, nil
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
