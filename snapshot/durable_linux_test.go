package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/syscalltest"
)

func init() { syscalltest.Child(restoreOnly) }

// restoreOnly restores the only snapshot.
func restoreOnly(dir string) error {
	s, err := openAt(dir)
	if err != nil {
		return err
	}
	all, err := s.List(context.Background())
	if err != nil {
		return err
	}
	_, err = s.Restore(context.Background(), all[0].ID, nil)
	return errors.Join(err, s.Close())
}

// TestARestoreSaysWhatItDoesBeforeItDoesIt: the intent is on the disk before the first name in the workspace changes.
func TestARestoreSaysWhatItDoesBeforeItDoesIt(t *testing.T) {
	b := newBench(t)
	b.write("f", "old")
	b.create()
	b.write("f", "new")
	calls := syscalltest.Order(t, b.dir)
	said := slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, "fsync store/") })
	require.GreaterOrEqual(t, said, 0, "%v", calls)
	require.Equal(t, []string{"rename", "fsync store", "rename"}, calls[said+1:said+4], "%v", calls)
	assert.NotContains(t, calls[:said], "rename", "%v", calls)
	assert.NoFileExists(t, filepath.Join(b.dir, "store", intentName))
}

func TestWhatARestoreLeftUndoneIsDoneByTheNextCall(t *testing.T) {
	b := newBench(t)
	b.write("d/a", "old")
	b.write("d/b", "old")
	want, id := tree(t, b.ws), b.create().ID
	b.write("d/a", "new")
	require.NoError(t, os.Remove(filepath.Join(b.ws, "d/b")))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "store", intentName), []byte(`{"snapshot_id":"`+id+`"}`), 0o600))
	done, err := b.store.Recover(context.Background())
	require.NoError(t, err)
	assert.True(t, done)
	assert.Equal(t, want, tree(t, b.ws))
	assert.NoFileExists(t, filepath.Join(b.dir, "store", intentName))
}

// ends is a context that ends when a condition becomes true.
type ends struct {
	context.Context
	when func() bool
}

func (e ends) Err() error {
	if e.when() {
		return context.Canceled
	}
	return nil
}

func TestARestoreThatHasBegunGoesToItsEnd(t *testing.T) {
	b := newBench(t)
	b.write("f", "old")
	want, id := tree(t, b.ws), b.create().ID
	b.write("f", "new")
	begun := func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "store", intentName))
		return err == nil
	}
	b.store.opts.Quiesce = nil // so that it looks again
	_, err := b.store.Restore(ends{t.Context(), begun}, id, nil)
	require.NoError(t, err)
	assert.Equal(t, want, tree(t, b.ws))
	assert.False(t, begun())
	b.write("f", "newer")
	_, err = b.store.Restore(ends{t.Context(), func() bool { return true }}, id, nil)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotEqual(t, want, tree(t, b.ws), "a restore that has not begun changes nothing")
}

// TestAttributesAreSetOnWhatWasSeenOnly, not on another file that has got the name since.
func TestAttributesAreSetOnWhatWasSeenOnly(t *testing.T) {
	b := newBench(t)
	b.write("f", "x")
	before := tree(t, b.ws)
	ws, err := os.Open(b.ws)
	require.NoError(t, err)
	defer ws.Close()
	seen := &entry{name: "f", ino: 1}
	require.NoError(t, new(apply).attributes(int(ws.Fd()), seen, &entry{name: "f", mode: 0o600}))
	assert.Equal(t, before, tree(t, b.ws))
}

func TestWhatWasPlacedIsKnownByItsTimesUnlessTheyAreYoung(t *testing.T) {
	p := newPlaced()
	old, young := entry{ino: 1, size: 1, mtime: p.since - 1}, entry{ino: 1, size: 1, mtime: p.since}
	p.note(1, &young)
	assert.False(t, p.holds(&young), "it may have been changed since, in the same moment")
	p.note(1, &old)
	assert.True(t, p.holds(&old))
	for what, other := range map[string]entry{
		"another file": {ino: 2, size: 1, mtime: old.mtime}, "longer": {ino: 1, size: 2, mtime: old.mtime},
		"another time": {ino: 1, size: 1, mtime: old.mtime - 1},
	} {
		assert.False(t, p.holds(&other), what)
	}
}
