package files

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/filewire"
)

const (
	// maxHeld is the maximum memory of pending names, in bytes.
	maxHeld  = 16 << 20
	nameCost = 48 // overhead of a name, in bytes
	maxName  = 255
	maxAttrs = 8 << 10 // bytes of attributes of a file
)

func (w *worker) stat(path string) error {
	item, err := describe(unix.AT_FDCWD, path, w.ask.Follow, w.ask.Attrs)
	if err != nil {
		return err
	}
	return w.PutJSON(filewire.IsItem, item)
}

// describe returns the description of a name in a directory.
func describe(dir int, name string, follow, attrs bool) (*filewire.Item, error) {
	how := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		how = 0
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, how); err != nil {
		return nil, err
	}
	item := itemOf(&st)
	if isLink(st.Mode) {
		describeLink(item, dir, name)
	}
	if attrs {
		item.Attrs = attributes(dir, name, how)
	}
	return item, nil
}

func itemOf(st *unix.Stat_t) *filewire.Item {
	return &filewire.Item{
		Mode: st.Mode, UID: st.Uid, GID: st.Gid, Size: st.Size, Seconds: int64(st.Mtim.Sec), Nanos: int64(st.Mtim.Nsec),
	}
}

func describeLink(i *filewire.Item, dir int, name string) {
	buf := make([]byte, filewire.MaxPath)
	if n, err := unix.Readlinkat(dir, name, buf); err == nil {
		i.Link = slices.Clone(buf[:n])
	}
	target, err := open(dir, name, unix.O_PATH, 0)
	if err != nil {
		return
	}
	defer target.Close()
	var st unix.Stat_t
	n, err := unix.Readlink(self(target), buf)
	if err == nil && unix.Fstat(fd(target), &st) == nil {
		i.Real, i.RealMode = slices.Clone(buf[:n]), st.Mode
	}
}

// self returns a path to an open file.
func self(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(fd(f)) }

// attributes returns the user attributes of a file that fit in [maxAttrs].
func attributes(dir int, name string, how int) map[string][]byte {
	flags := unix.O_PATH
	if how != 0 {
		flags |= unix.O_NOFOLLOW
	}
	f, err := open(dir, name, flags, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, value := make([]byte, 64<<10), make([]byte, maxAttrs)
	n, err := unix.Listxattr(self(f), names)
	if err != nil {
		return nil
	}
	found := map[string][]byte{}
	left := maxAttrs
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		n, err := unix.Getxattr(self(f), name, value)
		if err == nil && len(name)+n <= left {
			found[name] = slices.Clone(value[:n])
			left -= len(name) + n
		}
	}
	return found
}

// lister walks one tree.
type lister struct {
	w    *worker
	left int  // items
	held int  // bytes of names
	cut  bool // the listing is incomplete
}

func (w *worker) list(path string) error {
	dir, err := open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	l := &lister{w: w, left: w.ask.Limit}
	if err := l.walk(dir, "", w.ask.Depth); err != nil {
		return err
	}
	if l.cut {
		return errLimited
	}
	return nil
}

// walk lists a directory, which it closes.
func (l *lister) walk(dir *os.File, prefix string, depth int) error {
	defer dir.Close()
	before := l.held
	defer func() { l.held = before }()
	names, err := l.names(dir)
	switch {
	case err != nil && prefix != "" && passedBy(err):
		return nil
	case err != nil:
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		item, err := describe(fd(dir), name, false, l.w.ask.Attrs)
		switch {
		case err != nil && !errors.Is(err, unix.ENOENT) && prefix == "": // it can't be searched
			return at(name, err)
		case err != nil:
			continue // gone meanwhile
		}
		if l.left <= 0 {
			l.cut = true
			return nil
		}
		l.left--
		path := prefix + name
		item.Name = []byte(path)
		if err := l.w.PutJSON(filewire.IsItem, item); err != nil {
			return err
		}
		if isDir(item.Mode) && depth > 1 {
			if err := l.enter(dir, name, path+"/", depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lister) enter(dir *os.File, name, prefix string, depth int) error {
	if len(prefix)+maxName > filewire.MaxPath {
		l.cut = true
		return nil
	}
	below, err := open(fd(dir), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case err == nil:
		return l.walk(below, prefix, depth)
	case passedBy(err):
		return nil
	}
	return at(prefix, err)
}

// passedBy reports whether to skip a directory below the listed one: it is unreadable, has been replaced, or belongs to
// a process that has ended.
func passedBy(err error) bool {
	return slices.ContainsFunc([]unix.Errno{
		unix.EACCES, unix.EPERM, unix.ENOENT, unix.ENOTDIR, unix.ELOOP,
		unix.ESRCH, unix.EINVAL, // from /proc: EINVAL comes from the net directory of a zombie
	}, func(known unix.Errno) bool { return errors.Is(err, known) })
}

// names reads the names in a directory, as far as maxHeld allows.
func (l *lister) names(dir *os.File) (names []string, err error) {
	for {
		some, err := dir.Readdirnames(512)
		for _, name := range some {
			if l.held += len(name) + nameCost; l.held > maxHeld {
				l.cut = true
				return names, nil
			}
			names = append(names, name)
		}
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
