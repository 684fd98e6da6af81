package quota

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/hosttest"
	_ "github.com/wisbox/wisbox/internal/properties"
)

func opendir(t testing.TB, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

func put(t testing.TB, path string, size int) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
}

func walked(t testing.TB, path string) Limit {
	t.Helper()
	taken, exact, err := Walk(context.Background(), Limit{}, opendir(t, path))
	require.NoError(t, err)
	require.True(t, exact)
	return taken
}

func TestAWalkCountsBlocksAndNamesEachFileOnce(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("a"), 100_000)
	require.NoError(t, os.Link(at("a"), at("b")))
	require.NoError(t, os.Mkdir(at("d"), 0o700))
	require.NoError(t, os.Link(at("a"), at("d/c")))
	require.NoError(t, os.Symlink("/", at("out")))
	require.NoError(t, syscall.Mkfifo(at("fifo"), 0o600))
	require.NoError(t, os.Truncate(at("a"), 1<<40), "sparse")
	taken := walked(t, dir)
	assert.EqualValues(t, 4, taken.Inodes, "a, d, out, fifo")
	assert.InDelta(t, 100_000, taken.Bytes, 30_000)
}

func TestAWalkOfAnyTreeIsWhatTheLibraryCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(rt, err)
		paths := rapid.SliceOf(rapid.StringMatching(`[a-c](/[a-c]){0,4}`)).Draw(rt, "paths")
		for _, p := range paths {
			_ = os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o700)
			_ = os.WriteFile(filepath.Join(dir, p), make([]byte, 5000), 0o600) // where it isn't a directory
		}
		var want Limit
		require.NoError(rt, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if path != dir {
				want.Inodes++
				want.Bytes += blocksOf(t, path)
			}
			return err
		}))
		assert.Equal(rt, want, walked(t, dir))
	})
}

func TestAWalkStopsAtItsLimitAndWithItsContext(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		put(t, filepath.Join(dir, fmt.Sprint(i)), 5000)
	}
	taken, _, err := Walk(t.Context(), Limit{Inodes: 10}, opendir(t, dir))
	require.NoError(t, err)
	assert.True(t, taken.Reaches(Limit{Inodes: 10}))
	assert.True(t, taken.Reaches(Limit{Bytes: 5000}))
	assert.False(t, taken.Reaches(Limit{}), "no limit")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = Walk(ctx, Limit{}, opendir(t, dir))
	assert.ErrorIs(t, err, context.Canceled)
}

func TestAWalkGoesAsDeepAsTheTreeWithTwoDescriptors(t *testing.T) {
	top := hosttest.InMemory(t)
	const levels = 3000
	deep(t, top, levels)
	before := walkedDescriptors(t)
	began := time.Now()
	assert.EqualValues(t, levels, walked(t, top).Inodes)
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.LessOrEqual(t, walkedDescriptors(t), before+1, "that of the test itself")
}

// deep creates a chain of directories that is longer than any path.
func deep(t *testing.T, top string, levels int) {
	t.Helper()
	at, err := syscall.Open(top, syscall.O_DIRECTORY, 0)
	require.NoError(t, err)
	chain := []int{at}
	for range levels {
		require.NoError(t, syscall.Mkdirat(at, "d", 0o700))
		next, err := syscall.Openat(at, "d", syscall.O_DIRECTORY, 0)
		require.NoError(t, err)
		if len(chain) > 1 {
			_ = syscall.Close(at)
		}
		chain, at = append(chain[:1], next), next
	}
	_ = syscall.Close(at)
	_ = syscall.Close(chain[0])
	t.Cleanup(func() { require.NoError(t, exec.Command("rm", "-rf", top).Run()) })
}

func walkedDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestAWalkWhileEverythingMovesEndsAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("a/b/c/d"), 0o700))
	require.NoError(t, os.Mkdir(at("x"), 0o700))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(at("a/b/c"), at("x/c"))
				_ = os.Rename(at("x/c"), at("a/b/c"))
			}
		}
	}()
	root := opendir(t, dir)
	for range 2000 {
		taken, exact, err := Walk(t.Context(), Limit{}, root)
		require.NoError(t, err)
		if exact {
			assert.LessOrEqual(t, taken.Inodes, int64(7))
		}
	}
	close(stop)
	<-done
}

func TestFilesWithoutANameAreFoundWithWhoHasThemOpen(t *testing.T) {
	_, dir := mounted(t, Limit{4 * mib, 100}, false) // nobody else has files there
	root, err := os.Open(dir)
	require.NoError(t, err)
	defer root.Close()
	f, err := os.Create(filepath.Join(dir, "f"))
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 100_000))
	require.NoError(t, err)
	require.Zero(t, Unlinked(t.Context(), root, dir))
	require.NoError(t, os.Remove(f.Name()))
	got := Unlinked(t.Context(), root, dir)
	assert.EqualValues(t, 1, got.Inodes)
	assert.InDelta(t, 100_000, got.Bytes, 30_000)
	assert.Zero(t, Unlinked(t.Context(), root, "/workspace"), "another's files")
	require.NoError(t, f.Close())
	assert.Zero(t, Unlinked(t.Context(), root, dir))
}

func TestDirectoriesThatTheirOwnerClosedAreCountedAndStayClosed(t *testing.T) {
	if hosttest.AsNobody(t) {
		return
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("a/b"), 0o700))
	put(t, at("a/f"), 5000)
	put(t, at("a/b/f"), 5000)
	for _, mode := range []os.FileMode{0, 0o400, 0o100} {
		root := opendir(t, dir)
		for _, name := range []string{"a/b", "a", "."} {
			require.NoError(t, os.Chmod(at(name), mode))
		}
		taken, exact, err := Walk(t.Context(), Limit{}, root)
		require.NoError(t, err)
		assert.True(t, exact)
		assert.EqualValues(t, 4, taken.Inodes, "%v", mode)
		for _, name := range []string{".", "a", "a/b"} {
			info, err := os.Stat(at(name))
			require.NoError(t, err)
			assert.Equal(t, mode, info.Mode().Perm(), name)
			require.NoError(t, os.Chmod(at(name), 0o700))
		}
	}
}
