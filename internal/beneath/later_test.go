package beneath

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func treeOf(t *testing.T, folders, files int) (dir *os.File, entries int64) {
	t.Helper()
	path := t.TempDir()
	for i := range folders {
		require.NoError(t, os.MkdirAll(filepath.Join(path, "t", fmt.Sprint(i)), 0o755))
		for j := range files {
			require.NoError(t, os.WriteFile(filepath.Join(path, "t", fmt.Sprint(i), fmt.Sprint(j)), nil, 0o644))
		}
	}
	dir, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return dir, int64(1 + folders + folders*files)
}

// A long removal returns before it is done, and its count includes everything.
func TestALongRemovalAnswersAndGoesOn(t *testing.T) {
	for _, wait := range []time.Duration{-1, time.Millisecond, time.Hour} {
		dir, want := treeOf(t, 20, 50)
		var l Later
		n, err := l.remove(t.Context(), dir, "t", wait)
		require.NoError(t, err)
		assert.Equal(t, want, n, wait)
		l.working.Wait()
		assert.NoFileExists(t, filepath.Join(dir.Name(), "t"))
		l.Close()
	}
}

func TestALongRemovalEndsWithItsOwner(t *testing.T) {
	dir, _ := treeOf(t, 1, 1)
	var l Later
	l.Close()
	require.NoError(t, l.Free(dir, "t"))
	l.working.Wait()
	assert.DirExists(t, filepath.Join(dir.Name(), "t"), "nothing begins after Close")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.remove(ctx, dir, "t", time.Hour)
	assert.ErrorIs(t, err, context.Canceled, "the caller's end is no reason to go on")
}

// A sweep doesn't touch trees that are being freed in the background.
func TestASweepLeavesWhatIsBeingFreed(t *testing.T) {
	dir, _ := treeOf(t, 3, 3)
	root, err := os.OpenRoot(dir.Name())
	require.NoError(t, err)
	defer root.Close()
	s, err := NewStaging(root, nil, false)
	require.NoError(t, err)
	defer s.Close()
	name := s.Name()
	require.NoError(t, os.Rename(filepath.Join(dir.Name(), "t"), filepath.Join(dir.Name(), name)))
	spared := s.spare(name)
	require.NoError(t, s.Sweep())
	assert.DirExists(t, filepath.Join(dir.Name(), spared))
	require.NoError(t, s.Free(spared))
	s.later.working.Wait()
	entries, err := os.ReadDir(dir.Name())
	require.NoError(t, err)
	assert.Empty(t, entries)
}
