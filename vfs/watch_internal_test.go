package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/hosttest"
)

func watched(t *testing.T, path string) *watcher {
	root, err := os.OpenRoot(path)
	require.NoError(t, err)
	tree, err := beneath.New(root, Mount)
	require.NoError(t, err)
	base, err := tree.OpenDir("")
	require.NoError(t, err)
	w, err := newWatcher(t.Context(), base, ASCII, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, w.events.Close())
		require.NoError(t, base.Close())
		require.NoError(t, tree.Close())
		require.NoError(t, root.Close())
	})
	return w
}

// roundOf does what run does with the pending events.
func (w *watcher) roundOf(t *testing.T) []Change {
	t.Helper()
	require.NoError(t, w.drain(make([]byte, 64<<10)))
	w.lookAgain(t.Context())
	return w.changes()
}

// TestAMovedTreeIsLookedAtOnceForAllItsMoves also checks that each directory has its last name.
func TestAMovedTreeIsLookedAtOnceForAllItsMoves(t *testing.T) {
	dir := hosttest.InMemory(t)
	for i := range 500 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "tree", fmt.Sprint(i)), 0o755))
	}
	w := watched(t, dir)
	w.time = time.Minute // one look is enough, however busy the machine is
	require.Len(t, w.watched, 502)
	name := "tree"
	for i := range 600 {
		next := fmt.Sprintf("tree%d", i)
		require.NoError(t, os.Rename(filepath.Join(dir, name), filepath.Join(dir, next)))
		name = next
	}
	changes := w.roundOf(t)
	assert.Equal(t, 1, w.round)
	assert.Empty(t, w.todo)
	assert.Contains(t, changes, Change{Path: name, Op: Created})
	for _, d := range w.watched {
		assert.True(t, d.path == "" || under(d.path, name), d.path)
	}
	require.Len(t, w.watched, 502)
}

// TestAWatchHoldsNoMoreThanItsBounds has more directories, longer names and more changes than a
// watch holds.
func TestAWatchHoldsNoMoreThanItsBounds(t *testing.T) {
	dir := hosttest.InMemory(t)
	long := strings.Repeat("n", 200)
	for i := range 10_000 {
		require.NoError(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
	}
	w := watched(t, dir)
	assert.Len(t, w.watched, maxWatched)
	assert.Equal(t, Change{Op: Overflow}, w.changes()[0], "some are not watched: it says so at once")
	w.all()
	assert.Equal(t, Change{Op: Overflow}, w.roundOf(t)[0])
	assert.Len(t, w.watched, maxWatched)
	assert.Contains(t, w.watched, int32(1), "the base stays")

	for i := range 400 { // each below 19 directories with names of 200 characters
		at := filepath.Join(dir, "deep", fmt.Sprint(i))
		for range 18 {
			at = filepath.Join(at, long)
		}
		require.NoError(t, os.MkdirAll(at, 0o755))
	}
	for i := range maxWatched {
		require.NoError(t, os.Remove(filepath.Join(dir, fmt.Sprint(i))))
	}
	for range 50 {
		w.roundOf(t)
	}
	assert.LessOrEqual(t, w.memory, watchMemory+4096)
	assert.LessOrEqual(t, w.queue, watchMemory+4096)
	assert.LessOrEqual(t, w.noted, watchMemory+4096)
	memory := 0
	for _, d := range w.watched {
		memory += len(d.path)
	}
	assert.Equal(t, memory, w.memory)
}
