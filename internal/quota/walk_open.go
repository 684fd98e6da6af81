package quota

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// ownerRX are the rights that we need to count a directory's entries.
const ownerRX = 0o500

func openDir(at *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(at.Fd()), name, dirFlags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// look reads a directory's state, and whether its mode excludes its owner.
func look(dir *os.File) (level, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return level{}, err
	}
	closed := st.Mode&ownerRX != ownerRX && int(st.Uid) == os.Geteuid() && st.Uid != 0
	return level{id: fileID{uint64(st.Dev), st.Ino}, mode: uint32(st.Mode) & 0o7777, closed: closed}, nil
}

// unlock and lock change the mode while we are inside.
func (l level) unlock(dir *os.File) error {
	if !l.closed {
		return nil
	}
	return sys.Chmod(int(dir.Fd()), l.mode|ownerRX)
}

func (l level) lock(dir *os.File) {
	if l.closed {
		_ = sys.Chmod(int(dir.Fd()), l.mode)
	}
}

type opened struct {
	level
	dir *os.File
}

// open opens a directory by its name, whatever its mode.
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
		err = l.unlock(dir) // it can be read but not searched
	}
	if err != nil {
		_ = dir.Close()
		return opened{}, err
	}
	return opened{l, dir}, nil
}

func openClosed(at *os.File, name string) (opened, error) {
	fd, err := unix.Openat(int(at.Fd()), name, sys.Place|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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
	fd, err = sys.Reopen(int(path.Fd()), dirFlags&^unix.O_NOFOLLOW)
	if err != nil {
		l.lock(path)
		return opened{}, err
	}
	return opened{l, os.NewFile(uintptr(fd), name)}, nil
}
