package rundir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/rundir"
)

func TestPrivateClosesADirectoryToOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	require.NoError(t, rundir.Private(dir))
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, rundir.Private(dir))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestPrivateRefusesALink(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(base, "real"), 0o700))
	require.NoError(t, os.Symlink("real", filepath.Join(base, "link")))
	require.ErrorContains(t, rundir.Private(filepath.Join(base, "link")), "not a directory")
}

func TestALongRuntimeDirectoryIsPassedOver(t *testing.T) {
	long := filepath.Join(t.TempDir(), "a-directory-name-that-leaves-no-room-for-the-name-of-a-socket")
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", long)
	require.NotContains(t, rundir.Default(), long)
}
