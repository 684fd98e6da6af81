package sys

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As on Linux, see there, with these differences.
const (
	// Place needs the right to read. A FIFO doesn't block, and a link isn't followed if O_NOFOLLOW
	// is given too.
	Place = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	Quiet = 0

	NoReplace = unix.RENAME_EXCL
	Exchange  = unix.RENAME_SWAP

	FoldsNames = true

	FileClock = unix.CLOCK_REALTIME
	BootClock = unix.CLOCK_MONOTONIC // counts while the machine sleeps
)

// In an entry, the length of the name is between the type and the length of the entry.
const (
	DirentType = 20
	DirentName = 21
)

// Getdents reads entries of a directory. It counts the entries read: if some of them are removed
// meanwhile, it skips as many, so a caller that removes entries must start again.
func Getdents(dir int, buf []byte) (int, error) { return unix.Getdirentries(dir, buf, new(uintptr)) }

// Rename returns EINVAL if the file system has no such rename, as on Linux.
func Rename(fromDir int, from string, toDir int, to string, flags uint) error {
	err := unix.RenameatxNp(fromDir, from, toDir, to, uint32(flags))
	if errors.Is(err, unix.ENOTSUP) {
		return unix.EINVAL
	}
	return err
}

// Chmod changes the mode of an open file.
func Chmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }

// SetTimes sets times, to the microsecond.
func SetTimes(fd int, times []unix.Timespec) error {
	var tv [2]unix.Timeval
	for i, t := range times {
		tv[i] = unix.NsecToTimeval(t.Nano())
	}
	return unix.Futimes(fd, tv[:])
}

// Reopen returns EACCES: it can't open a file that wasn't readable before.
func Reopen(int, int) (int, error) { return -1, unix.EACCES }

// Unnamed returns ENOTSUP.
func Unnamed(int, uint32) (int, error) { return -1, unix.ENOTSUP }

// LinkUnnamed returns ENOTSUP.
func LinkUnnamed(int, int, string) error { return unix.ENOTSUP }

// CloneFile returns ENOTSUP.
func CloneFile(int, int) error { return unix.ENOTSUP }

// CopyRange returns ENOSYS.
func CopyRange(int, int, int) (int, error) { return 0, unix.ENOSYS }

// SyncFS makes all files of all file systems durable.
func SyncFS(int) error { return unix.Sync() }

// PathOf returns the present path of an open directory.
func PathOf(dir *os.File) (string, error) {
	const pathMax = 1024 // the kernel's maximum
	buf := make([]byte, pathMax)
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	if _, err := unix.FcntlInt(dir.Fd(), unix.F_GETPATH, int(uintptr(unsafe.Pointer(&buf[0])))); err != nil {
		return "", err
	}
	path, _, _ := bytes.Cut(buf, []byte{0})
	return string(path), nil
}

// UnnamedMemory creates a file in the directory of temporary files and removes its name.
func UnnamedMemory(name string) (*os.File, error) {
	f, err := os.CreateTemp("", name+"-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// SocketPair creates a pair of connected unix sockets.
func SocketPair(kind int) ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	return fds, err
}

// NoPrograms reports whether the programs of a file system can't be executed.
func NoPrograms(st *unix.Statfs_t) bool { return st.Flags&unix.MNT_NOEXEC != 0 }

// Reserve returns ENOTSUP.
func Reserve(int, int64, int64) error { return unix.ENOTSUP }

// OpenElsewhere returns false.
func OpenElsewhere(int) bool { return false }

// HasAttributes returns true.
func HasAttributes(_ int, _ string, buf []byte) (bool, []byte) { return true, buf }

// As returns ENOTSUP.
func As(int, int, func() error) error { return unix.ENOTSUP }
