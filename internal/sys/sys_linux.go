package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// Place opens a file for its Stat only, or a directory to work in.
	Place = unix.O_PATH
	// Quiet reads without updating the access time. If that isn't permitted, opening returns EPERM.
	Quiet = unix.O_NOATIME

	// NoReplace and Exchange are flags of [Rename].
	NoReplace = unix.RENAME_NOREPLACE
	Exchange  = unix.RENAME_EXCHANGE

	// FoldsNames reports whether file systems usually treat names as equal that differ in case, or
	// in their Unicode form.
	FoldsNames = false

	// FileClock is the clock of file systems' times.
	FileClock = unix.CLOCK_REALTIME_COARSE
	// BootClock counts from the boot, including suspended time.
	BootClock = unix.CLOCK_BOOTTIME
)

// Offsets in an entry of [Getdents]: its length is at 16, followed by its type and its name, up to
// a zero byte.
const (
	DirentType = 18
	DirentName = 19
)

// Getdents reads entries of a directory.
func Getdents(dir int, buf []byte) (int, error) { return unix.Getdents(dir, buf) }

// Rename renames. With [NoReplace] it keeps an existing entry, with [Exchange] it exchanges both.
// If the file system can't, it returns EINVAL; if the system can't, ENOSYS.
func Rename(fromDir int, from string, toDir int, to string, flags uint) error {
	return unix.Renameat2(fromDir, from, toDir, to, flags)
}

// Chmod works on any descriptor, including a [Place].
func Chmod(fd int, mode uint32) error {
	return unix.Fchmodat(unix.AT_FDCWD, procFD(fd), mode, 0)
}

// SetTimes sets the access and modification times of any descriptor, including a [Place].
func SetTimes(fd int, times []unix.Timespec) error {
	err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.8
		err = unix.UtimesNanoAt(unix.AT_FDCWD, procFD(fd), times, 0)
	}
	return err
}

// Reopen opens a [Place] again with other flags.
func Reopen(place, flags int) (int, error) { return unix.Open(procFD(place), flags, 0) }

// Unnamed creates a file without a name. [LinkUnnamed] can give it one.
func Unnamed(dir int, mode uint32) (int, error) {
	return unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, mode&0o777)
}

// LinkUnnamed gives a file of [Unnamed] a name.
func LinkUnnamed(fd, dir int, name string) error {
	err := unix.Linkat(fd, "", dir, name, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOENT) { // before Linux 6.10 it needs a right of root
		err = unix.Linkat(unix.AT_FDCWD, procFD(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
	}
	return err
}

// CloneFile makes dst share the blocks of src.
func CloneFile(dst, src int) error { return unix.IoctlFileClone(dst, src) }

// CopyRange copies at most n bytes from src's position to dst's.
func CopyRange(dst, src, n int) (int, error) { return unix.CopyFileRange(src, nil, dst, nil, n, 0) }

// SyncFS makes all files of fd's file system durable.
func SyncFS(fd int) error { return unix.Syncfs(fd) }

// PathOf returns the present path of an open directory.
func PathOf(dir *os.File) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
}

// UnnamedMemory creates a file without a name in memory.
func UnnamedMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// SocketPair creates a pair of connected unix sockets.
func SocketPair(kind int) ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
}

// NoPrograms reports whether the programs of a file system can't be executed.
func NoPrograms(st *unix.Statfs_t) bool { return st.Flags&unix.ST_NOEXEC != 0 }

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Reserve takes room on the disk for a part of a file, without changing its size.
func Reserve(fd int, at, size int64) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, at, size)
}

// OpenElsewhere reports whether another open file refers to the same file as fd. It returns false if
// this process may not know.
func OpenElsewhere(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
	if err == nil {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}

// HasAttributes reports whether an entry of an open directory may have extended attributes. It follows no
// link at the end. buf is memory for it, so that many calls need none; it returns it for the next one.
func HasAttributes(dir int, name string, buf []byte) (bool, []byte) {
	buf = append(buf[:0], "/proc/self/fd/"...)
	buf = strconv.AppendInt(buf, int64(dir), 10)
	buf = append(append(buf, '/'), name...)
	buf = append(buf, 0)
	n, _, errno := unix.Syscall(unix.SYS_LLISTXATTR, uintptr(unsafe.Pointer(&buf[0])), 0, 0)
	runtime.KeepAlive(buf)
	return errno == 0 && n > 0 || errno != 0 && errno != unix.EOPNOTSUPP, buf
}

// As calls do with the rights of another user to files, for a process of root that works in a directory where that user
// decides: a link or a rename of theirs leads to nothing that they couldn't reach. do must not start goroutines that
// open files.
func As(uid, gid int, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // until the goroutine ends, and its thread with it
		err := become(uid, gid)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// become changes the user of this thread's file operations. Linux then drops the capabilities to pass over permissions.
func become(uid, gid int) error {
	const none = -1 // changes nothing, and returns the present ID
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return errno
	}
	_, _ = unix.SetfsgidRetGid(gid)
	_, _ = unix.SetfsuidRetUid(uid)
	isGID, err := unix.SetfsgidRetGid(none)
	if err != nil {
		return err
	}
	isUID, err := unix.SetfsuidRetUid(none)
	if err != nil {
		return err
	}
	if isUID != uid || isGID != gid {
		return unix.EPERM
	}
	return nil
}
