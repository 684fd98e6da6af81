package snapshot

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
)

// modes opens what its own mode forbids its owner to open. A file gets its mode
// back at once, a directory when the walk is over. All of it goes by
// descriptors: whatever a name means meanwhile, no other entry is touched.
//
// Reading leaves the access times alone where the kernel allows it to us: else
// each look at a tree that was just written would write every inode of it again.
type modes struct {
	touches atomic.Bool // it doesn't

	mu   sync.Mutex
	dirs []changedMode
}

// quietly opens for reading.
func (m *modes) quietly(open func(flags int) (int, error)) (int, error) {
	if !m.touches.Load() {
		fd, err := open(unix.O_RDONLY | unix.O_NOATIME)
		if !errors.Is(err, unix.EPERM) {
			return fd, err
		}
		m.touches.Store(true)
	}
	return open(unix.O_RDONLY)
}

type changedMode struct {
	fd   int // O_PATH
	mode uint32
}

func (m *modes) openFile(dir int, name string) (int, error) {
	fd, err := m.quietly(func(flags int) (int, error) { return beneath.OpenAt(dir, name, flags) })
	if !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	at, err := beneath.OpenAt(dir, name, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, errors.Join(err, unix.ENXIO)
	}
	if err := chmod(at, st.Mode&0o7777|0o400); err != nil {
		return -1, err
	}
	fd, err = unix.Open(procFD(at), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	return fd, errors.Join(err, chmod(at, st.Mode&0o7777))
}

// openDir opens a directory for listing, with the right to go through it.
func (m *modes) openDir(at *place) (int, error) {
	fd, err := m.quietly(at.open)
	if errors.Is(err, unix.EACCES) {
		if fd, err = at.open(unix.O_PATH); err == nil {
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

const maxForbidden = 1_000 // directories whose mode is changed at a time

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
	m.dirs = append(m.dirs, changedMode{fd: own, mode: st.Mode & 0o7777})
	return chmod(own, st.Mode&0o7777|0o700)
}

func (m *modes) restore() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, dir := range slices.Backward(m.dirs) {
		errs = append(errs, chmod(dir.fd, dir.mode), unix.Close(dir.fd))
	}
	m.dirs = nil
	return errors.Join(errs...)
}

// chmod works on any descriptor, O_PATH too.
func chmod(fd int, mode uint32) error {
	return unix.Fchmodat(unix.AT_FDCWD, procFD(fd), mode, 0)
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
