package snapshot

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/sys"
)

// apply changes the workspace into the wanted state, one name in one directory at a time. It
// doesn't rely on what an earlier scan saw: if a program has changed something meanwhile, a step
// is done differently or skipped, and the next scan finds the difference.
type apply struct {
	*dirWalk
	store *Store
	stage *stage
	// removing only removes entries: the new ones aren't staged yet.
	removing bool
}

// run applies the whole tree, several directories at a time. It ends with the first error.
func (a *apply) run(have, want *entry) error {
	a.dirWalk = newDirWalk(newPool(context.Background()))
	defer a.release()
	a.push(&dirWork{at: newPlace(int(a.store.top.Fd())), have: have, want: want}, a.dir)
	return a.pool.run()
}

func (a *apply) dir(w *dirWork, _ []byte) error {
	fd, err := openForChange(w.at)
	if vanished(err) {
		return a.done(w)
	}
	if err != nil {
		return err
	}
	if w.up != nil && w.have != nil && !a.removing && w.have.attrs() != w.want.attrs() {
		err = a.stage.setUserAttributes(fd, w.want)
	}
	subdirs, failed := a.entries(fd, w.have, w.want)
	err = errors.Join(err, failed)
	if a.removing {
		w.finished = true
	}
	if err == nil && len(subdirs) == 0 && !w.finished {
		w.finished, err = true, finishDir(fd, w.want)
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	w.left.Add(int32(len(subdirs)))
	for _, d := range subdirs {
		a.push(&dirWork{up: w, at: w.at.below(d.want.name), have: d.have, want: d.want}, a.dir)
	}
	return a.done(w)
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
		case a.removing && (x == nil || x.kind != folder || y.kind != folder):
			return nil
		case x == nil, needsPlacing(x, y), y.kind == file && a.stage.has(y):
			if err := a.put(fd, x == nil, y); err != nil {
				return err
			}
			if y.kind == folder { // complete, except for its own mode and time
				subdirs = append(subdirs, dirPair{y, y})
			}
			return nil
		case y.kind != folder && (x.mtime != y.mtime || !sameMode(x, y)):
			return a.attributes(fd, x, y)
		}
		if y.kind == folder && (!sameTree(x, y) || !sameMode(x, y) || x.mtime != y.mtime) {
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

// put moves the wanted entry into place, over the existing entry or in exchange for it.
func (a *apply) put(fd int, free bool, want *entry) error {
	name, err := a.stage.take(want)
	if err != nil {
		return err
	}
	for range tries {
		if free {
			err = sys.Rename(a.stage.dir, name, fd, want.name, sys.NoReplace)
		} else {
			err = a.exchange(fd, name, want)
		}
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOENT) {
			break
		}
		free = errors.Is(err, unix.ENOENT)
	}
	if err != nil {
		a.stage.trash.drop(name)
	}
	return skippable(err)
}

// exchange swaps a staged entry with the existing one. A plain rename would do for a file in the
// place of a file, but then the kernel writes the new one to the disk and frees the old one
// before it lets any other rename begin.
func (a *apply) exchange(fd int, staged string, want *entry) error {
	err := sys.Rename(a.stage.dir, staged, fd, want.name, sys.Exchange)
	if errors.Is(err, unix.EACCES) {
		allowMove(fd, want.name)
		err = sys.Rename(a.stage.dir, staged, fd, want.name, sys.Exchange)
	}
	switch {
	case err == nil:
		a.stage.trash.drop(staged)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return a.replace(fd, staged, want)
	}
	return err
}

// replace does the same on file systems that can't exchange names. A directory that
// gives way to a file, or the other way around, is missing for a moment.
func (a *apply) replace(fd int, staged string, want *entry) error {
	if want.kind != folder {
		err := unix.Renameat(a.stage.dir, staged, fd, want.name)
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	if err := a.takeOut(fd, want.name); err != nil {
		return err
	}
	return unix.Renameat(a.stage.dir, staged, fd, want.name)
}

func (a *apply) takeOut(fd int, name string) error {
	fresh := a.store.staging.Name()
	err := unix.Renameat(fd, name, a.stage.dir, fresh)
	if errors.Is(err, unix.EACCES) {
		allowMove(fd, name)
		err = unix.Renameat(fd, name, a.stage.dir, fresh)
	}
	if err == nil {
		a.stage.trash.drop(fresh)
	}
	return err
}

// allowMove changes the mode of a directory that couldn't be moved otherwise: a move changes
// its "..".
func allowMove(fd int, name string) {
	at, err := beneath.OpenAt(fd, name, sys.Place|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(at)
	_ = sys.Chmod(at, 0o700)
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

// attributes sets the mode and time of exactly the file that the scan saw.
func (a *apply) attributes(fd int, have, want *entry) error {
	at, err := beneath.OpenAt(fd, want.name, sys.Place)
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
	return setAttributes(at, &st, want)
}

// skippable ignores errors that only a program can have caused.
func skippable(err error) error {
	if vanished(err) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// openForChange opens a directory and gives its owner all rights on it. finishDir restores its
// mode.
func openForChange(at *place) (int, error) {
	fd, err := at.open(unix.O_RDONLY)
	if errors.Is(err, unix.EACCES) {
		if fd, err = at.open(sys.Place); err == nil {
			err = errors.Join(sys.Chmod(fd, 0o700), unix.Close(fd))
		}
		if err == nil {
			fd, err = at.open(unix.O_RDONLY)
		}
	}
	if err == nil && unix.Faccessat(fd, ".", unix.W_OK|unix.X_OK, 0) != nil {
		err = sys.Chmod(fd, 0o700)
	}
	return fd, err
}
