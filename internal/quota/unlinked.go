package quota

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Unlinked counts deleted files that processes keep open, where these processes see the directory
// dir at the path seenAt: a walk doesn't find such files, but they take space until they are
// closed. It sees the processes of this user, or all as root. When ctx ends, it returns what it has found.
func Unlinked(ctx context.Context, dir *os.File, seenAt string) Limit {
	var taken Limit
	own, err := look(dir)
	if err != nil {
		return taken
	}
	seen := map[fileID]bool{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if ctx.Err() != nil {
			break
		}
		var st unix.Stat_t
		if unix.Stat(process+"/root"+seenAt, &st) != nil || (fileID{uint64(st.Dev), st.Ino}) != own.id {
			continue
		}
		taken.addOpen(ctx, process+"/fd", own.id.dev, seen)
	}
	return taken
}

func (l *Limit) addOpen(ctx context.Context, fds string, dev uint64, seen map[fileID]bool) {
	dir, err := os.Open(fds)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if ctx.Err() != nil {
			return
		}
		var st unix.Stat_t
		if unix.Stat(fds+"/"+name, &st) != nil || uint64(st.Dev) != dev || st.Nlink > 0 {
			continue
		}
		id := fileID{uint64(st.Dev), st.Ino}
		if !seen[id] {
			seen[id] = true
			l.Bytes += st.Blocks * 512
			l.Inodes++
		}
	}
}
