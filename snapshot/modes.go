package snapshot

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/sys"
)

// modes opens files and directories whose mode forbids that to their owner. It restores a file's
// mode at once, and a directory's after the walk. It uses only descriptors, so it never touches
// another entry, even if names change meanwhile.
//
// Reading leaves access times alone if the kernel allows it. Otherwise each scan of a new tree
// would write every inode again.
type modes struct {
	touches atomic.Bool // the kernel refuses O_NOATIME

	mu   sync.Mutex
	dirs []changedMode
}

// quietly opens for reading.
func (m *modes) quietly(open func(flags int) (int, error)) (int, error) {
	if !m.touches.Load() {
		fd, err := open(unix.O_RDONLY | sys.Quiet)
		if !errors.Is(err, unix.EPERM) {
			return fd, err
		}
		m.touches.Store(true)
	}
	return open(unix.O_RDONLY)
}

type changedMode struct {
	fd   int // a [sys.Place]
	mode uint32
}

func (m *modes) openFile(dir int, name string) (int, error) {
	fd, err := m.quietly(func(flags int) (int, error) { return beneath.OpenAt(dir, name, flags) })
	if !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	at, err := beneath.OpenAt(dir, name, sys.Place)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, errors.Join(err, unix.ENXIO)
	}
	if err := sys.Chmod(at, uint32(st.Mode)&0o7777|0o400); err != nil {
		return -1, err
	}
	fd, err = sys.Reopen(at, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC)
	return fd, errors.Join(err, sys.Chmod(at, uint32(st.Mode)&0o7777))
}

// openDir opens a directory for listing, with the right to enter it.
func (m *modes) openDir(at *place) (int, error) {
	fd, err := m.quietly(at.open)
	if errors.Is(err, unix.EACCES) {
		if fd, err = at.open(sys.Place); err == nil {
			defer unix.Close(fd)
			if err = m.allow(fd); err == nil {
				return at.open(unix.O_RDONLY)
			}
		}
		return -1, err
	}
	if err != nil || unix.Faccessat(fd, ".", unix.X_OK, 0) == nil {
		return fd, err
	}
	if err := m.allow(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

const maxForbidden = 1_000 // directories with a changed mode at a time

func (m *modes) allow(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.dirs) == maxForbidden {
		_ = unix.Close(own)
		return unix.EACCES
	}
	m.dirs = append(m.dirs, changedMode{fd: own, mode: uint32(st.Mode) & 0o7777})
	return sys.Chmod(own, uint32(st.Mode)&0o7777|0o700)
}

func (m *modes) restore() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, dir := range slices.Backward(m.dirs) {
		errs = append(errs, sys.Chmod(dir.fd, dir.mode), unix.Close(dir.fd))
	}
	m.dirs = nil
	return errors.Join(errs...)
}
