package snapshot

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
)

// apply changes the workspace into what is wanted, one name in one directory at
// a time. It believes nothing of what was seen before: what a program has done
// meanwhile makes a step go another way or be left out, and the look that
// follows finds it.
type apply struct {
	store *Store
	stage *stage
}

// dir makes one directory right: first what isn't a directory, then those
// below, at last its own mode and time.
func (a *apply) dir(at *place, have, want *entry) error {
	fd, err := openForChange(at)
	if vanished(err) {
		return nil
	}
	if err != nil {
		return err
	}
	subdirs, err := a.entries(fd, have, want)
	err = errors.Join(err, unix.Close(fd))
	if err != nil {
		return err
	}
	for _, d := range subdirs {
		below := at.below(d.want.name)
		err := a.dir(below, d.have, d.want)
		below.release()
		if err != nil {
			return err
		}
	}
	return finishDir(at, want)
}

type dirPair struct{ have, want *entry }

func (a *apply) entries(fd int, have, want *entry) (subdirs []dirPair, err error) {
	var inside *dir
	if have != nil {
		inside = have.dir
	}
	err = pairs(inside, want.dir, func(x, y *entry) error {
		switch {
		case missing(y):
			if x == nil || x.kind == special && y != nil {
				return nil
			}
			return a.remove(fd, x)
		case x == nil, needsPlacing(x, y):
			if err := a.put(fd, x == nil, y); err != nil {
				return err
			}
			x = nil
		case y.kind != folder && (x.mtime != y.mtime || !sameMode(x, y)):
			return a.attributes(fd, x, y)
		}
		if y.kind == folder && (x == nil || !sameTree(x, y) || x.mode != y.mode || x.mtime != y.mtime) {
			subdirs = append(subdirs, dirPair{x, y})
		}
		return nil
	})
	return subdirs, err
}

func needsPlacing(x, y *entry) bool {
	if y.kind == file {
		return needsStaging(x, y)
	}
	return !sameContent(x, y)
}

// put brings the wanted entry in and takes out what is there.
func (a *apply) put(fd int, free bool, want *entry) error {
	name, err := a.stage.take(want)
	if err != nil {
		return err
	}
	for range tries {
		if free {
			err = unix.Renameat2(a.stage.dir, name, fd, want.name, unix.RENAME_NOREPLACE)
		} else if err = a.exchange(fd, name, want.name); err == nil {
			a.stage.drop(name)
		}
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOENT) {
			break
		}
		free = errors.Is(err, unix.ENOENT)
	}
	if err != nil {
		a.stage.drop(name)
	}
	return skippable(err)
}

// exchange falls back to two renames where the file system can't do it in one.
func (a *apply) exchange(fd int, staged, name string) error {
	err := unix.Renameat2(a.stage.dir, staged, fd, name, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EACCES) {
		allowMove(fd, name)
		err = unix.Renameat2(a.stage.dir, staged, fd, name, unix.RENAME_EXCHANGE)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := a.takeOut(fd, name); err != nil {
		return err
	}
	return unix.Renameat(a.stage.dir, staged, fd, name)
}

func (a *apply) takeOut(fd int, name string) error {
	fresh := a.store.staging.Name()
	err := unix.Renameat(fd, name, a.stage.dir, fresh)
	if errors.Is(err, unix.EACCES) {
		allowMove(fd, name)
		err = unix.Renameat(fd, name, a.stage.dir, fresh)
	}
	if err == nil {
		a.stage.drop(fresh)
	}
	return err
}

// allowMove lets a directory be moved whose own mode forbids it: its ".." changes.
func allowMove(fd int, name string) {
	at, err := beneath.OpenAt(fd, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(at)
	_ = chmod(at, 0o700)
}

func (a *apply) remove(fd int, have *entry) error {
	if have.kind != folder {
		err := unix.Unlinkat(fd, have.name, 0)
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
			return skippable(err)
		}
	}
	return skippable(a.takeOut(fd, have.name))
}

// attributes sets mode and time of the very file that was seen.
func (a *apply) attributes(fd int, have, want *entry) error {
	at, err := beneath.OpenAt(fd, want.name, unix.O_PATH)
	if err != nil {
		return skippable(err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil || st.Ino != have.ino {
		return err
	}
	if want.kind == symlink {
		return skippable(unix.UtimesNanoAt(fd, want.name, times(want), unix.AT_SYMLINK_NOFOLLOW))
	}
	return setAttributes(at, want)
}

// skippable forgives what only a program can have caused.
func skippable(err error) error {
	if vanished(err) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// openForChange opens a directory and gives its owner all rights on it; what it
// had comes back with finishDir.
func openForChange(at *place) (int, error) {
	fd, err := at.open(unix.O_RDONLY)
	if errors.Is(err, unix.EACCES) {
		if fd, err = at.open(unix.O_PATH); err == nil {
			err = errors.Join(chmod(fd, 0o700), unix.Close(fd))
		}
		if err == nil {
			fd, err = at.open(unix.O_RDONLY)
		}
	}
	if err == nil && unix.Faccessat(fd, ".", unix.W_OK|unix.X_OK, 0) != nil {
		err = chmod(fd, 0o700)
	}
	return fd, err
}

func finishDir(at *place, want *entry) error {
	fd, err := at.open(unix.O_PATH)
	if err != nil {
		return skippable(err)
	}
	defer unix.Close(fd)
	return setAttributes(fd, want)
}
