package vfs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// nextTick waits until the kernel's clock of inodes has passed the last writes.
func nextTick(t *testing.T) time.Time {
	t.Helper()
	now := time.Now() // a late tick has an earlier time
	require.Eventually(t, func() bool { return vfs.Mark().After(now) }, time.Minute, time.Millisecond)
	return vfs.Mark()
}

func TestWhatChangedSinceAMarkIsFound(t *testing.T) {
	w := newWorld(t)
	at := func(name string) string { return filepath.Join(w.path, name) }
	for _, name := range []string{"old", "d/written", "d/e/untouched", "gone/x", "mode", "time"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		require.NoError(t, os.WriteFile(at(name), []byte("1"), 0o644))
	}
	since := func(mark time.Time, most int, limits budget.Limits) vfs.Touched {
		b := budget.New(context.Background(), limits)
		defer b.Close()
		found, err := w.fs.ChangedSince(b, mark, most)
		require.NoError(t, err)
		return found
	}
	mark := nextTick(t)
	assert.Equal(t, vfs.Touched{}, since(mark, 9, budget.Limits{}))

	require.NoError(t, os.WriteFile(at("d/written"), []byte("2"), 0o644))
	require.NoError(t, os.Remove(at("gone/x")))
	require.NoError(t, os.Chmod(at("mode"), 0o600))
	require.NoError(t, os.WriteFile(at("time"), []byte("2"), 0o644))
	require.NoError(t, os.Chtimes(at("time"), time.Unix(1, 0), time.Unix(1, 0)))
	assert.Equal(t, []string{"d/written", "gone/", "mode", "time"}, since(mark, 9, budget.Limits{}).Paths, "whatever time a program sets")

	require.NoError(t, os.Symlink("old", at("link")))
	require.NoError(t, unix.Mkfifo(at("odd\nname"), 0o600))
	assert.Equal(t, vfs.Touched{Paths: []string{"/", "d/written", "gone/", "link", "mode", `odd\nname`, "time"}}, since(mark, 9, budget.Limits{}))
	some := since(mark, 2, budget.Limits{})
	assert.Len(t, some.Paths, 2)
	assert.Equal(t, int64(5), some.More)

	for i := range 3000 {
		require.NoError(t, os.WriteFile(at(fmt.Sprintf("d/e/%d", i)), nil, 0o600))
	}
	assert.True(t, since(mark, 9, budget.Limits{Steps: 300}).Cut)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := w.fs.ChangedSince(budget.New(ctx, budget.Limits{}), mark, 9)
	assert.NotEqual(t, tool.Kind(""), tool.KindOf(err))
}
