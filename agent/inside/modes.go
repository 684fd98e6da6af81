package inside

import "golang.org/x/sys/unix"

// modes are those of the directories that are file systems of the container's own.
var modes = map[string]uint32{"/tmp": 0o1777, "/dev/shm": 0o1777, "/run": 0o755, secrets: 0o755}

// ownModes sets them: runc gives a tmpfs the mode of the directory of the image that it
// covers, whatever was asked for. A place that is no tmpfs is left alone.
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
