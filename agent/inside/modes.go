package inside

import "golang.org/x/sys/unix"

// modes are the modes of directories that are the container's own file systems. That of the home directory is for
// gVisor; elsewhere it belongs to the programs, and the agent can't change it.
var modes = map[string]uint32{"/tmp": 0o1777, "/var/home/wisbox": 0o1777, "/dev/shm": 0o1777, "/run": 0o755, secrets: 0o755}

// ownModes sets them: runc gives a tmpfs the mode of the image's directory that it covers, instead of the requested
// one. ownModes skips a directory that is not a tmpfs.
func ownModes() {
	for path, mode := range modes {
		fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var fs unix.Statfs_t
		if unix.Fstatfs(fd, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC) {
			_ = unix.Fchmod(fd, mode)
		}
		_ = unix.Close(fd)
	}
}
