package quota

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// ownerRX is what we need of a directory to count what it holds.
const ownerRX = 0o500

func openDir(at *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(at.Fd()), name, dirFlags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// look says what a directory is, and whether it is closed to its owner, us.
func look(dir *os.File) (level, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return level{}, err
	}
	closed := st.Mode&ownerRX != ownerRX && int(st.Uid) == os.Geteuid() && st.Uid != 0
	return level{id: fileID{uint64(st.Dev), st.Ino}, mode: st.Mode & 0o7777, closed: closed}, nil
}

// unlock and lock change the mode for as long as we are inside.
func (l level) unlock(dir *os.File) error {
	if !l.closed {
		return nil
	}
	return unix.Chmod(self(dir), l.mode|ownerRX)
}

func (l level) lock(dir *os.File) {
	if l.closed {
		_ = unix.Chmod(self(dir), l.mode)
	}
}

// self names an open directory also where its descriptor is only a path.
func self(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

type opened struct {
	level
	dir *os.File
}

// open goes into the directory of a name, closed or not.
func open(at *os.File, name string) (opened, error) {
	dir, err := openDir(at, name)
	if errors.Is(err, unix.EACCES) {
		return openClosed(at, name)
	}
	if err != nil {
		return opened{}, err
	}
	l, err := look(dir)
	if err == nil {
		err = l.unlock(dir) // readable, but not to be searched
	}
	if err != nil {
		_ = dir.Close()
		return opened{}, err
	}
	return opened{l, dir}, nil
}

func openClosed(at *os.File, name string) (opened, error) {
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return opened{}, err
	}
	path := os.NewFile(uintptr(fd), name)
	defer path.Close()
	l, err := look(path)
	if err == nil {
		err = l.unlock(path)
	}
	if err != nil {
		return opened{}, err
	}
	fd, err = unix.Open(self(path), dirFlags&^unix.O_NOFOLLOW, 0)
	if err != nil {
		l.lock(path)
		return opened{}, err
	}
	return opened{l, os.NewFile(uintptr(fd), name)}, nil
}
