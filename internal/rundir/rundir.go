// Package rundir finds the short, private directory for the sockets of a user's wisbox processes.
// The directory doesn't survive a reboot; state is kept elsewhere.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxSocketPath is the longest path of a unix socket, in bytes, that works everywhere: sun_path has
// 108, and tools add suffixes.
const MaxSocketPath = 100

// Default returns /run/wisbox for root, whose logins, units and cron jobs share it. For others it
// returns wisbox in $XDG_RUNTIME_DIR if that directory is the user's own, or in /run/user/UID: an
// agent runtime may start wisbox without the variable, and must find the sockets of the user's
// shell. Without either it returns /tmp/wisbox-UID. The directories of logins come and go with them.
func Default() string { return defaultOf(os.Getuid()) }

func defaultOf(uid int) string {
	if uid == 0 {
		return "/run/wisbox"
	}
	user := strconv.Itoa(uid)
	if dir := firstOfOurs(MaxSocketPath/2, os.Getenv("XDG_RUNTIME_DIR"), "/run/user/"+user); dir != "" {
		return filepath.Join(dir, "wisbox")
	}
	return filepath.Join("/tmp", "wisbox-"+user)
}

// Login returns the runtime directory of this user's login, or "" if there is none: $XDG_RUNTIME_DIR, or /run/user/UID if
// the variable is missing, as in cron jobs, or has another user's directory, as after su. For root it is the variable.
func Login() string { return loginOf(os.Getuid(), "/run/user/"+strconv.Itoa(os.Getuid())) }

func loginOf(uid int, usual string) string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if uid == 0 {
		return dir
	}
	return firstOfOurs(math.MaxInt, dir, usual)
}

// Bus reports whether the user's own systemd can be reached, which gives the containers of a user cgroups with limits: by
// the socket in dir, which Login returned, or by address, which is that of $DBUS_SESSION_BUS_ADDRESS.
func Bus(dir, address string) bool {
	return BusAt(address) || dir != "" && unix.Access(filepath.Join(dir, "bus"), unix.W_OK) == nil
}

// BusAt reports whether address is a bus that this user may use, as far as its file shows. It isn't after su, which keeps
// the variable of the user before.
func BusAt(address string) bool {
	path, isPath := strings.CutPrefix(address, "unix:path=")
	path, _, _ = strings.Cut(path, ",")
	return address != "" && (!isPath || unix.Access(path, unix.W_OK) == nil)
}

// firstOfOurs returns the first directory that belongs to us and has a path shorter than limit.
func firstOfOurs(limit int, dirs ...string) string {
	for _, dir := range dirs {
		if dir != "" && len(dir) < limit && OwnedByUs(dir) == nil {
			return dir
		}
	}
	return ""
}

// Private creates dir, or checks that it is a real directory of ours, and makes it private.
func Private(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := OwnedByUs(dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// OwnedByUs checks that dir is a directory, not a link, of this user.
func OwnedByUs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory of user %d", dir, os.Getuid())
	}
	return nil
}
