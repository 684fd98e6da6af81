package vfs_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// until reads changes up to the wanted one, and returns them.
func until(t *testing.T, changes <-chan vfs.Change, want vfs.Change) []vfs.Change {
	t.Helper()
	var got []vfs.Change
	deadline := time.After(30 * time.Second)
	for {
		select {
		case c, open := <-changes:
			require.True(t, open, "closed before %v, after %v", want, got)
			got = append(got, c)
			if c == want {
				return got
			}
		case <-deadline:
			require.Fail(t, "not told", "%v; told %v", want, got)
		}
	}
}

func TestWatchTellsOfBothSidesChanges(t *testing.T) {
	w := newWorld(t)
	w.file("d/old", "x")
	w.file("elsewhere/f", "x")
	w.link(w.outside, "d/out")
	changes, err := w.fs.Watch(t.Context(), "d")
	require.NoError(t, err)
	w.ok("write_file", `{"file_path":"d/new","content":"x"}`)
	until(t, changes, vfs.Change{Path: "d/new", Op: vfs.Created})
	w.ok("write_file", `{"file_path":"d/old","content":"y","mode":"overwrite"}`)
	got := until(t, changes, vfs.Change{Path: "d/old", Op: vfs.Changed})
	assert.False(t, slices.Contains(got, vfs.Change{Path: "d/old", Op: vfs.Removed}))
	w.file("elsewhere/g", "x")
	w.file("d/sub/deep/f", "x")
	got = until(t, changes, vfs.Change{Path: "d/sub/deep/f", Op: vfs.Created})
	assert.True(t, slices.Contains(got, vfs.Change{Path: "d/sub", Op: vfs.Created}))
	w.file("d/sub/deep/f", "program")
	until(t, changes, vfs.Change{Path: "d/sub/deep/f", Op: vfs.Changed})
	w.ok("rm", `{"path":"d/new"}`)
	until(t, changes, vfs.Change{Path: "d/new", Op: vfs.Removed})
	require.NoError(t, os.Rename(w.at("d/old"), w.at("moved")))
	until(t, changes, vfs.Change{Path: "d/old", Op: vfs.Removed})
}

func TestWatchEnds(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	byCtx, err := w.fs.Watch(ctx, "")
	require.NoError(t, err)
	byClose, err := w.fs.Watch(t.Context(), "/")
	require.NoError(t, err)
	cancel()
	_, open := <-byCtx
	assert.False(t, open)
	require.NoError(t, w.fs.Close())
	_, open = <-byClose
	assert.False(t, open)
	_, err = w.fs.Watch(t.Context(), "")
	assert.Equal(t, tool.Closed, tool.KindOf(err))
}

func TestWatchRefuses(t *testing.T) {
	w := newWorld(t)
	w.file("f", "x")
	w.link(w.outside, "out")
	for path, kind := range map[string]tool.Kind{"f": tool.NotDir, "missing": tool.NotFound, "out": tool.Escape, "../x": tool.Invalid} {
		_, err := w.fs.Watch(t.Context(), path)
		assert.Equal(t, kind, tool.KindOf(err), path)
	}
}

func TestWatchSaysWhenItLosesChanges(t *testing.T) {
	w := newLargeWorld(t)
	changes, err := w.fs.Watch(t.Context(), "")
	require.NoError(t, err)
	w.many("many", 24_000) // more than the kernel keeps, and than the watcher collects
	until(t, changes, vfs.Change{Op: vfs.Overflow})
	w.file("after", "x")
	until(t, changes, vfs.Change{Path: "after", Op: vfs.Created})
}

func TestWatchFollowsWhatIsMoved(t *testing.T) {
	w := newWorld(t)
	w.file("d/a/deep/f", "x")
	w.file("d/out/deep/f", "x")
	w.dir("elsewhere")
	changes, err := w.fs.Watch(t.Context(), "d")
	require.NoError(t, err)
	require.NoError(t, os.Rename(w.at("d/a"), w.at("d/b")))
	require.NoError(t, os.Rename(w.at("d/out"), w.at("elsewhere/out")))
	got := until(t, changes, vfs.Change{Path: "d/b/deep/f", Op: vfs.Created})
	assert.True(t, slices.Contains(got, vfs.Change{Path: "d/a", Op: vfs.Removed}))
	require.NoError(t, os.Rename(w.at("d/b"), w.at("d/c")))
	require.NoError(t, os.Rename(w.at("d/c"), w.at("d/b")))
	w.file("elsewhere/out/deep/f", "unseen")
	w.file("d/b/deep/f", "seen")
	w.file("d/last", "x")
	got = until(t, changes, vfs.Change{Path: "d/last", Op: vfs.Created})
	w.file("d/b/deep/f", "seen again")
	got = append(got, until(t, changes, vfs.Change{Path: "d/b/deep/f", Op: vfs.Changed})...)
	for _, c := range got {
		assert.NotContains(t, c.Path, "out", "it has left what is watched")
		assert.NotContains(t, c.Path, "d/a")
	}
}

// TestWatchFindsAgainWhatItMissed makes a directory while events are lost.
func TestWatchFindsAgainWhatItMissed(t *testing.T) {
	w := newLargeWorld(t)
	changes, err := w.fs.Watch(t.Context(), "")
	require.NoError(t, err)
	w.many("many", 24_000)
	w.dir("late/sub")
	until(t, changes, vfs.Change{Op: vfs.Overflow})
	for i := 0; ; i++ {
		require.Less(t, i, 1_000, "late/sub is not watched")
		w.file("late/sub/f", "x")
		w.file("mark", "x")
		mark := vfs.Change{Path: "mark", Op: vfs.Changed}
		if i == 0 {
			mark.Op = vfs.Created
		}
		seen := until(t, changes, mark)
		if slices.Contains(seen, vfs.Change{Path: "late/sub/f", Op: vfs.Changed}) {
			return
		}
	}
}
