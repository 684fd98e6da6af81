package beneath

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// openStepwise is openat2 with other calls: it opens rel element by element, follows no link and
// enters no other device. Unlike openat2 it accepts a bind mount of the same device, which only a
// user who can mount can create. A link before the last element is ELOOP.
func openStepwise(dir int, rel string, flags int) (int, error) {
	fd, err := unix.Openat(dir, ".", sys.Place|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var top unix.Stat_t
	if err := unix.Fstat(fd, &top); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	if rel == "" {
		rel = "."
	}
	for more := true; more; {
		var name string
		name, rel, more = strings.Cut(rel, "/")
		at, want := fd, flags
		if more {
			want = sys.Place | unix.O_DIRECTORY
		}
		fd, err = openStep(at, name, want, &top)
		if more && errors.Is(err, unix.ENOTDIR) && isLink(at, name) {
			err = unix.ELOOP
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
	}
	return fd, nil
}

// openStep opens one element on the file system of top.
func openStep(at int, name string, flags int, top *unix.Stat_t) (fd int, err error) {
	if name == "." {
		fd, err = unix.Openat(at, ".", flags|unix.O_CLOEXEC, 0)
	} else {
		fd, err = OpenAt(at, name, flags)
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Dev != top.Dev {
		err = unix.EXDEV
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func isLink(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}
