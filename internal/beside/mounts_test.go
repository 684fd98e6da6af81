package beside

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/sandbox"
)

// ofAPod are the mounts of a container of programs on containerd 1.6: an overlay, the volumes of
// the Pod's spec, and those of the runtime. %[1]s is a directory with the paths of the files.
const ofAPod = `900 800 0:90 / / ro,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c
901 900 0:91 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
902 900 0:92 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
903 902 0:93 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,ptmxmode=666
904 902 0:94 / /dev/mqueue rw,nosuid,nodev,noexec,relatime - mqueue mqueue rw
905 900 0:95 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
906 905 0:96 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
907 906 0:97 /pod /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:15 - cgroup cgroup rw,memory
908 900 0:98 / /ctl rw,relatime - tmpfs tmpfs rw,size=1024k
909 900 0:99 / /tmp rw,relatime - tmpfs tmpfs rw,size=65536k
910 900 0:100 / /run/secrets rw,relatime - tmpfs tmpfs rw,size=1024k
911 900 254:0 /volumes/state/cache/workspace %[1]s/workspace rw,relatime - ext4 /dev/vda rw,discard
912 900 254:0 /pods/uid/etc-hosts %[1]s/hosts rw,relatime - ext4 /dev/vda rw,discard
913 902 254:0 /pods/uid/containers/programs/1 %[1]s/termination-log rw,relatime - ext4 /dev/vda rw,discard
914 900 254:0 /sandboxes/id/resolv.conf %[1]s/resolv.conf ro,relatime - ext4 /dev/vda rw,discard
915 902 0:101 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k
916 901 0:92 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
917 900 254:0 /pods/uid/socket %[1]s/socket rw,relatime - ext4 /dev/vda rw
918 900 254:0 /readonly %[1]s/readonly rw,relatime - ext4 /dev/vda ro
919 900 254:0 /private %[1]s/private rw,relatime - ext4 /dev/vda rw
`

// places makes the files of ofAPod. Programs have another user ID than their owner.
func places(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, as the container of programs has")
	}
	dir, err := os.MkdirTemp("/tmp", "wisbox-mounts-") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	for _, name := range []string{"workspace", "readonly", "private"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "readonly"), 0o777)) //nolint:gosec // open to all
	for name, mode := range map[string]os.FileMode{"hosts": 0o644, "termination-log": 0o600, "resolv.conf": 0o666} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return dir
}

// found returns the paths below dir that uncounted finds among the mounts of a Pod and more.
func found(t *testing.T, dir, more string) (names []string) {
	t.Helper()
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(fmt.Sprintf(ofAPod, dir)+more), nil)
	require.NoError(t, err)
	for _, path := range uncounted(mounts, filepath.Join(dir, "workspace")) {
		name, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		names = append(names, name)
	}
	return names
}

func TestThePodsOwnMountsAreCounted(t *testing.T) {
	dir := places(t)
	assert.Empty(t, found(t, dir, ""))
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Symlink("workspace", home)) // as with user_home, the same directory
	assert.Empty(t, found(t, dir, "920 900 254:0 /volumes/state/cache/workspace "+home+" rw - ext4 /dev/vda rw\n"))
}

func TestDirectoriesOfTheNodeAreFound(t *testing.T) {
	dir := places(t)
	lines := ""
	for _, name := range []string{"data", "two words", "workspace/inner", "tmp", "roots", "on-nfs"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o755)) //nolint:gosec // a directory of the image
		kind := "ext4"
		if name == "on-nfs" {
			kind = "nfs4"
		}
		lines += "921 900 254:0 /volumes/id " + strings.ReplaceAll(filepath.Join(dir, name), " ", `\040`) + " rw,relatime - " + kind + " node rw\n"
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "hosts"), 0o666)) //nolint:gosec // any program could fill it
	lines += "922 900 254:0 /volumes/id " + dir + "/missing rw - ext4 /dev/vda rw\n"
	assert.Equal(t, []string{"data", "hosts", "missing", "on-nfs", "roots", "tmp", "two words", "workspace/inner"}, found(t, dir, lines))

	require.NoError(t, os.Chown(filepath.Join(dir, "private"), sandbox.UserID, sandbox.GroupID))
	require.NoError(t, os.Chown(filepath.Join(dir, "termination-log"), sandbox.UserID, sandbox.GroupID))
	assert.Subset(t, found(t, dir, ""), []string{"private", "termination-log"})
	writable := strings.Replace(ofAPod, "/ / ro", "/ / rw", 1)
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(fmt.Sprintf(writable, dir)), nil)
	require.NoError(t, err)
	assert.Contains(t, uncounted(mounts, filepath.Join(dir, "workspace")), "/")
}

// TestMountsAreRecordedAgain: a list of an earlier container is never used.
func TestMountsAreRecordedAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, mountsFile)
	require.NoError(t, jsonfile.Write(path, []string{"/earlier"}))
	require.NoError(t, recordMounts(dir))
	var paths []string
	require.NoError(t, jsonfile.Read(path, &paths))
	assert.NotContains(t, paths, "/earlier")
	mounts, err := ownMounts()
	require.NoError(t, err)
	assert.Equal(t, uncounted(mounts, sandbox.WorkspaceDir), paths)
}

func TestUncountedMountsAreGaps(t *testing.T) {
	p := newPod(t)
	path := filepath.Join(p.ctl, mountsFile)
	gaps := func() string {
		box := p.create()
		defer box.Close(t.Context())
		info, err := box.Info(t.Context())
		require.NoError(t, err)
		return strings.Join(info.Gaps, "\n")
	}
	assert.NotContains(t, gaps(), "disk isn't enforced")
	require.NoError(t, jsonfile.Write(path, []string{"/data", "/var/lib/x"}))
	assert.Contains(t, gaps(), "disk isn't enforced in /data, /var/lib/x: ")
	strict := p.spec()
	strict.Strict = true
	_, err := p.backend().Create(t.Context(), strict)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "disk isn't enforced in /data")
	many := make([]string, mostMounts+3)
	for i := range many {
		many[i] = fmt.Sprintf("/%d", i)
	}
	require.NoError(t, jsonfile.Write(path, many))
	assert.Contains(t, gaps(), "/15 and 3 more: ")
	require.NoError(t, os.Remove(path))
	assert.Contains(t, gaps(), "directories of the node is unknown")
}
