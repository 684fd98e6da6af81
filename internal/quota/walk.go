package quota

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errMoved means that a directory was moved during the walk, so the way back is lost.
var errMoved = errors.New("a directory was moved during the walk")

// Walk counts the content of directories of one file system, without the directories themselves,
// and stops early once limit is exceeded. A file with several names counts once; Walk doesn't
// follow links or enter mounts. Two descriptors suffice for any depth. If a directory's mode
// excludes its owner, Walk changes the mode while it is inside.
//
// Programs may change everything meanwhile: Walk misses entries created behind it. exact is false
// if the walk itself was disturbed, and the count may be lower by more than that.
func Walk(ctx context.Context, limit Limit, dirs ...*os.File) (taken Limit, exact bool, err error) {
	w := &walker{ctx: ctx, limit: limit, linked: map[fileID]bool{}}
	for _, dir := range dirs {
		err := w.tree(dir)
		if errors.Is(err, errMoved) {
			return w.taken, false, nil
		}
		if err != nil || w.taken.Reaches(limit) {
			return w.taken, true, err
		}
	}
	return w.taken, !w.skipped, nil
}

// Reaches reports whether the limit is reached.
func (l Limit) Reaches(limit Limit) bool {
	return limit.Bytes > 0 && l.Bytes >= limit.Bytes || limit.Inodes > 0 && l.Inodes >= limit.Inodes
}

type fileID struct{ dev, ino uint64 }

type walker struct {
	ctx     context.Context
	limit   Limit
	taken   Limit
	linked  map[fileID]bool // files with several names that were seen
	skipped bool            // something couldn't be read

	at  *os.File // the current directory, the last of way
	way []level
}

// level is a directory on the way down.
type level struct {
	id     fileID
	todo   []string // subdirectories that aren't counted yet
	mode   uint32
	closed bool // its mode excludes us and must be restored
}

func (w *walker) tree(root *os.File) error {
	w.way = nil
	if err := w.start(root); err != nil {
		return err
	}
	defer func() { _ = w.at.Close() }()
	for len(w.way) > 0 && !w.taken.Reaches(w.limit) {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) start(root *os.File) error {
	l, err := look(root)
	if err == nil {
		err = l.unlock(root)
	}
	if err != nil {
		return err
	}
	w.at, err = openDir(root, ".")
	if err == nil {
		w.enter(l)
	}
	return err
}

// step goes into the next directory, or up if there is none.
func (w *walker) step() error {
	last := &w.way[len(w.way)-1]
	if len(last.todo) == 0 {
		return w.ascend()
	}
	name := last.todo[len(last.todo)-1]
	last.todo = last.todo[:len(last.todo)-1]
	return w.descend(name)
}

// ascend goes back to the previous directory, if ".." is still the same one.
func (w *walker) ascend() error {
	left := w.way[len(w.way)-1]
	w.way = w.way[:len(w.way)-1]
	if len(w.way) == 0 {
		left.lock(w.at)
		return nil
	}
	up, err := openDir(w.at, "..")
	left.lock(w.at)
	if err != nil {
		return errMoved
	}
	_ = w.at.Close()
	w.at = up
	if l, err := look(up); err != nil || l.id != w.way[len(w.way)-1].id {
		return errMoved
	}
	return nil
}

// descend goes into a directory, unless it is gone or on another file system.
func (w *walker) descend(name string) error {
	l, err := open(w.at, name)
	if err != nil {
		w.skipped = w.skipped || !errors.Is(err, unix.ENOENT)
		return nil
	}
	if l.id.dev != w.way[len(w.way)-1].id.dev {
		_ = l.dir.Close()
		return nil
	}
	_ = w.at.Close()
	w.at = l.dir
	w.enter(l.level)
	return nil
}

// enter counts the entries of the current directory and lists its subdirectories.
func (w *walker) enter(l level) {
	for !w.taken.Reaches(w.limit) && w.ctx.Err() == nil {
		names, err := w.at.Readdirnames(256)
		for _, name := range names {
			if w.count(name) {
				l.todo = append(l.todo, name)
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
	}
	w.way = append(w.way, l)
}

// count counts one entry and reports whether it is a directory.
func (w *walker) count(name string) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(int(w.at.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		w.skipped = w.skipped || !errors.Is(err, unix.ENOENT)
		return false
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir && st.Nlink > 1 {
		id := fileID{uint64(st.Dev), st.Ino}
		if w.linked[id] {
			return false
		}
		w.linked[id] = true
	}
	w.taken.Bytes += st.Blocks * 512
	w.taken.Inodes++
	return isDir
}
