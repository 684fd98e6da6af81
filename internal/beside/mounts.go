package beside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/sandbox"
)

// mountsFile is the file with the result of uncounted, in the socket's directory.
const mountsFile = "mounts.json"

// diskless are the types of file systems without files on a disk. Files of a tmpfs count for the
// memory limit.
var diskless = []string{"cgroup", "cgroup2", "devpts", "mqueue", "proc", "sysfs", "tmpfs"}

// recordMounts writes the mount points that nothing counts to a file in dir, for [Backend]. It must
// be called before any program runs: programs can't change mounts, but they could change modes.
// If it fails, there is no file, and the mounts count as unknown.
func recordMounts(dir string) error {
	path := filepath.Join(dir, mountsFile)
	if err := jsonfile.Remove(path); err != nil { // of an earlier container
		return fmt.Errorf("remove the list of mounts: %w", err)
	}
	if mounts, err := ownMounts(); err == nil {
		_ = jsonfile.Write(path, uncounted(mounts, sandbox.WorkspaceDir))
	}
	return nil
}

// ownMounts returns the mounts that this process sees.
func ownMounts() ([]*mountinfo.Info, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var at unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &at); err != nil {
		return nil, err
	}
	if at.Type != unix.PROC_SUPER_MAGIC { // a file of the image
		return nil, errors.New("/proc is not the kernel's")
	}
	return mountinfo.GetMountsFromReader(f, nil)
}

// uncounted returns the mount points at which programs may be able to write to a disk, except the
// workspace: the Pod's spec declares no other disk. Most are directories that the image declares
// with VOLUME, which some runtimes put on the node.
func uncounted(mounts []*mountinfo.Info, workspace string) []string {
	found := []string{}
	counted, _ := os.Stat(workspace) // nil if missing; the holder refuses that
	for _, m := range mounts {
		if isReadOnly(m) || slices.Contains(diskless, m.FSType) || slices.Contains(found, m.Mountpoint) {
			continue
		}
		info, err := os.Stat(m.Mountpoint)
		if err == nil && (os.SameFile(info, counted) || isClosed(info)) {
			continue
		}
		found = append(found, m.Mountpoint)
	}
	slices.Sort(found)
	return found
}

// isReadOnly reports whether nobody can write through the mount.
func isReadOnly(m *mountinfo.Info) bool {
	return slices.Contains(strings.Split(m.Options, ","), "ro") || slices.Contains(strings.Split(m.VFSOptions, ","), "ro")
}

// isClosed reports whether programs, which aren't uid 0, can't write files there.
func isClosed(info fs.FileInfo) bool {
	const writers, others = 0o022, 0o077
	st, ok := info.Sys().(*syscall.Stat_t)
	root := ok && st.Uid == 0
	switch {
	case info.IsDir():
		return root && info.Mode()&others == 0 // with search permission, a directory below may be open
	case info.Mode().IsRegular():
		return root && info.Mode()&writers == 0
	}
	return true // devices and sockets have no bytes on a disk
}

// mostMounts bounds the number of mount points in a gap.
const mostMounts = 16

// diskGaps returns the gap for the mounts that nothing counts.
func (b *Backend) diskGaps() []string {
	var paths []string
	if err := jsonfile.Read(filepath.Join(filepath.Dir(b.opts.Socket), mountsFile), &paths); err != nil {
		b.log.Warn("the mounts of the container of programs can't be read", "error", err)
		return []string{"whether programs can write to directories of the node is unknown"}
	}
	if len(paths) == 0 {
		return nil
	}
	more := ""
	if n := len(paths) - mostMounts; n > 0 {
		paths, more = paths[:mostMounts], fmt.Sprintf(" and %d more", n)
	}
	return []string{fmt.Sprintf("disk isn't enforced in %s%s: programs may write there to the node's own disk, and nothing counts it; use an image that doesn't declare it with VOLUME", strings.Join(paths, ", "), more)}
}
