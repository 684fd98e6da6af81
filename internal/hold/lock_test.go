package hold

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

// TestOneHolderAtATimeThoughLocksAreRemoved: many processes take the lock in turn, each removes its
// file, and others sweep meanwhile. Nobody listens, so each gets its turn.
func TestOneHolderAtATimeThoughLocksAreRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "hold-0123456789abcdef")
	var inside, turns atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				lock, err := awaitLock(context.Background(), path)
				if !assert.NoError(t, err) || !assert.NotNil(t, lock) {
					return
				}
				assert.EqualValues(t, 1, inside.Add(1), "holders at once")
				turns.Add(1)
				sweepLocks(filepath.Join(dir, "hold-another"))
				inside.Add(-1)
				releaseLock(lock, path)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 200, turns.Load())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestLocksOfKilledHoldersAreSwept: those that nobody has, and no other.
func TestLocksOfKilledHoldersAreSwept(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"hold-dead", "hold-dead.lock", "hold-bare.lock", "mcp-1.token", "hold-mine.lock"} {
		require.NoError(t, os.WriteFile(at(name), nil, 0o600))
	}
	alive := flock.New(at("hold-alive.lock"))
	require.NoError(t, alive.Lock())
	defer alive.Close()
	sweepLocks(at("hold-mine"))
	var left []string
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	assert.Equal(t, []string{"hold-alive.lock", "hold-mine.lock", "mcp-1.token"}, left)
}

// TestNoHolderStartsWhileTheyAreExcluded, and one does afterwards.
func TestNoHolderStartsWhileTheyAreExcluded(t *testing.T) {
	r := Root{ID: "root", RuntimeDir: t.TempDir()}
	require.NoError(t, os.Chmod(r.RuntimeDir, 0o700))
	release := r.Exclude(t.Context(), "box")
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := r.Listen(soon, "box")
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	release()
	end, _, err := r.Listen(t.Context(), "box")
	require.NoError(t, err)
	end()
}
