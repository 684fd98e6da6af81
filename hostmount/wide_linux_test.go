package hostmount_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/tool"
)

func TestTheHomeByAnotherNameIsTooWide(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a directory; root's run of this test does")
	}
	top := t.TempDir()
	home, other := filepath.Join(top, "home"), filepath.Join(top, "other")
	require.NoError(t, os.MkdirAll(filepath.Join(home, "me"), 0o755))
	require.NoError(t, os.Mkdir(other, 0o755))
	require.NoError(t, syscall.Mount(home, other, "", syscall.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(other, syscall.MNT_DETACH)) })
	t.Setenv("HOME", filepath.Join(home, "me"))
	for _, dir := range []string{other, filepath.Join(other, "me")} {
		_, err := hostmount.OpenHomes([]hostmount.Mount{{HostPath: dir}}, &hostmount.Options{AllowedRoots: []string{dir}})
		assert.Equal(t, tool.Permission, tool.KindOf(err), dir)
	}
}
