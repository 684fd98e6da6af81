package sys_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestARenameReplacesOnlyInExchange(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(top, name), []byte(name), 0o600))
	}
	dir, err := os.Open(top)
	require.NoError(t, err)
	defer dir.Close()
	fd := int(dir.Fd())
	require.ErrorIs(t, sys.Rename(fd, "a", fd, "b", sys.NoReplace), unix.EEXIST)
	require.NoError(t, sys.Rename(fd, "a", fd, "b", sys.Exchange))
	for name, was := range map[string]string{"a": "b", "b": "a"} {
		text, err := os.ReadFile(filepath.Join(top, name))
		require.NoError(t, err)
		assert.Equal(t, was, string(text))
	}
	require.NoError(t, sys.Rename(fd, "a", fd, "c", sys.NoReplace))
	assert.NoFileExists(t, filepath.Join(top, "a"))
	require.ErrorIs(t, sys.Rename(fd, "a", fd, "c", sys.Exchange), unix.ENOENT)
}

func TestADirectoryKnowsItsPath(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	dir, err := os.Open(top)
	require.NoError(t, err)
	defer dir.Close()
	path, err := sys.PathOf(dir)
	require.NoError(t, err)
	assert.Equal(t, top, path)
	require.NoError(t, os.Rename(top, top+"-moved"))
	path, err = sys.PathOf(dir)
	require.NoError(t, err)
	assert.Equal(t, top+"-moved", path)
	require.NoError(t, os.Rename(top+"-moved", top))
}

func TestAPlaceHasAModeAndTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	require.NoError(t, os.Mkdir(path, 0o755))
	fd, err := unix.Open(path, sys.Place|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, sys.Chmod(fd, 0o750))
	when := unix.NsecToTimespec(1_000_000_000_000_000_000)
	require.NoError(t, sys.SetTimes(fd, []unix.Timespec{when, when}))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o750), info.Mode().Perm())
	assert.EqualValues(t, 1_000_000_000, info.ModTime().Unix())
}

func TestUnnamedMemoryHasNoName(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	f, err := sys.UnnamedMemory("test")
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("text"), 0)
	require.NoError(t, err)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestWhatIsDoneForAnotherUserHasThatUsersRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root acts for other users; root's run of this test does")
	}
	const other = 61_234
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	require.ErrorIs(t, sys.As(other, other, func() error { _, err := os.ReadDir(dir); return err }), os.ErrPermission)
	at := filepath.Join("/tmp", "wisbox-as-"+filepath.Base(dir)+strconv.Itoa(os.Getpid()))
	defer os.Remove(at)
	require.NoError(t, sys.As(other, other, func() error { return os.WriteFile(at, nil, 0o600) }))
	_, err := os.ReadDir(dir)
	require.NoError(t, err, "the process is still root")
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(at, &st))
	require.EqualValues(t, other, st.Uid)
	require.EqualValues(t, other, st.Gid)
}
