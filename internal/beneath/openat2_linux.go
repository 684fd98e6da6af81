//go:build !portable

package beneath

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/internal/sys"
)

// errSocket is the error of opening a socket.
const errSocket = unix.ENXIO

func hasOpenat2(dir int) bool {
	fd, err := openat2(dir, ".", sys.Place|unix.O_DIRECTORY)
	if err != nil {
		return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM)
	}
	_ = unix.Close(fd)
	return true
}

// openat2 opens rel below dir and follows no link on the way. The kernel returns EXDEV for a mount,
// and also if a file is renamed out of dir during the call. The file tools replace files this way,
// so openat2 tries again, up to [maxTries] times. A rename may also cause EAGAIN; but a lease
// (fcntl F_SETLEASE) on the file causes it too, for as long as the program that holds it lives, and
// then openat2 returns it.
func openat2(dir int, rel string, flags int) (fd int, err error) {
	if flags&unix.O_PATH != 0 {
		flags &^= unix.O_NONBLOCK | unix.O_NOCTTY // openat2 refuses flags without a meaning
	}
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	}
	for range maxTries {
		fd, err = retry.Interrupted(func() (int, error) { return unix.Openat2(dir, rel, &how) })
		if err != unix.EAGAIN && err != unix.EXDEV { //nolint:errorlint // errno values, compared as such
			break
		}
	}
	return fd, err
}

// readlink returns the text of the link at rel below dir, and whether there is a link at all.
func readlink(dir int, rel string) (text string, link bool, err error) {
	fd, err := openat2(dir, rel, sys.Place|unix.O_NOFOLLOW)
	if err != nil {
		return "", false, err
	}
	defer unix.Close(fd)
	return readlinkFD(fd)
}

func readlinkFD(fd int) (text string, link bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, nil
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", false, err
	}
	return string(buf[:n]), true, nil
}
