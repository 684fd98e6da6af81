package hold

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool/answer"
)

// rootWith returns a state root with a session box, and the session's directory.
func rootWith(t *testing.T) (Root, string) {
	t.Helper()
	r := Root{CacheDir: t.TempDir()}
	dir := filepath.Join(r.CacheDir, "sessions", "box")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return r, dir
}

// TestOneHolderAtATime: many take the lock in turn. Nobody listens, so each gets its turn.
func TestOneHolderAtATime(t *testing.T) {
	r, _ := rootWith(t)
	var inside, turns atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				lock, err := r.awaitLock(context.Background(), "box")
				if !assert.NoError(t, err) || !assert.NotNil(t, lock) {
					return
				}
				assert.EqualValues(t, 1, inside.Add(1), "holders at once")
				turns.Add(1)
				inside.Add(-1)
				_ = lock.Close()
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 200, turns.Load())
}

// TestNoHolderStartsWhileTheyAreExcluded, and one does afterwards.
func TestNoHolderStartsWhileTheyAreExcluded(t *testing.T) {
	r, _ := rootWith(t)
	release := r.Exclude(t.Context(), "box")
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := r.Listen(soon, "box")
	assert.Equal(t, answer.Busy, answer.KindOf(err))
	release()
	l, err := r.Listen(t.Context(), "box")
	require.NoError(t, err)
	l.Release()
}

// TestAHolderOfAnyPathIsReached: a socket's address has room for 108 bytes, and a state directory may be anywhere.
func TestAHolderOfAnyPathIsReached(t *testing.T) {
	for _, base := range []string{"s", strings.Repeat("a-long-name/", 30)} {
		place, err := os.MkdirTemp("/tmp", "wb")
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, os.RemoveAll(place)) })
		r := Root{CacheDir: filepath.Join(place, base)}
		dir := filepath.Join(r.CacheDir, "sessions", "box")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		_, err = r.Looker("box").Dial(t.Context())
		require.ErrorIs(t, err, ErrNoHolder)
		l, err := r.Listen(t.Context(), "box")
		require.NoError(t, err)
		c, err := r.Looker("box").Dial(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		info, err := os.Lstat(filepath.Join(dir, socketName))
		require.NoError(t, err)
		assert.Equal(t, os.ModeSocket|0o600, info.Mode())
		_, err = r.Listen(t.Context(), "box")
		assert.Equal(t, answer.Busy, answer.KindOf(err))
		l.Release()
		assert.NoFileExists(t, filepath.Join(dir, socketName))
	}
}

// TestAHolderRemovesNoOthersSocket: its session was removed, and another one has its name and a holder.
func TestAHolderRemovesNoOthersSocket(t *testing.T) {
	r, dir := rootWith(t)
	first, err := r.Listen(t.Context(), "box")
	require.NoError(t, err)
	assert.True(t, first.Current())
	require.NoError(t, os.Rename(dir, dir+"-gone"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	assert.False(t, first.Current())
	second, err := r.Listen(t.Context(), "box")
	require.NoError(t, err)
	first.Release()
	c, err := r.Looker("box").Dial(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	second.Release()
}

func TestAHolderNeedsASession(t *testing.T) {
	r, _ := rootWith(t)
	for _, name := range []string{"", ".", "..", "../sessions/box", "/box", "none"} {
		_, err := r.Listen(t.Context(), name)
		assert.Equal(t, answer.NotFound, answer.KindOf(err), name)
		_, err = r.Looker(name).Dial(t.Context())
		require.ErrorIs(t, err, ErrNoHolder, name)
		r.Exclude(t.Context(), name)()
	}
}
