package main

import (
	"archive/zip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/overlay"
)

// TestAPodWhoseSessionNeverComesEnds: its client was killed before it opened the session.
func TestAPodWhoseSessionNeverComesEnds(t *testing.T) {
	a := &app{cache: t.TempDir()}
	store, err := overlay.OpenStoreWith(a.cache, &overlay.StoreOptions{Single: true})
	require.NoError(t, err)
	defer store.Close()
	over := func(waited time.Duration) bool {
		t.Helper()
		yes, err := a.isOver(waited)
		require.NoError(t, err)
		return yes
	}
	assert.True(t, over(podAlone+1))
	assert.False(t, over(podAlone))

	d, err := store.Create(t.Context(), &overlay.CreateOptions{ID: "box", Kept: true})
	require.NoError(t, err)
	assert.False(t, over(podAlone+1), "an upload that takes its time")
	require.NoError(t, d.Close())
	require.NoError(t, store.Remove(t.Context(), "box"))
	assert.False(t, over(podAlone), "its opening failed, and the client may try again")
}

// TestAPodEndsWithASessionThatNobodySaw: one that is opened and removed between two looks.
func TestAPodEndsWithASessionThatNobodySaw(t *testing.T) {
	a := &app{cache: t.TempDir()}
	store, err := overlay.OpenStoreWith(a.cache, &overlay.StoreOptions{Single: true})
	require.NoError(t, err)
	defer store.Close()
	d, err := store.Create(t.Context(), &overlay.CreateOptions{ID: "box", Kept: true})
	require.NoError(t, err)
	require.NoError(t, d.SetState(overlay.StateReady))
	require.NoError(t, d.Close())
	early, err := a.isOver(podAlone + 1)
	require.NoError(t, err)
	assert.False(t, early, "a session that is there stays")
	require.NoError(t, store.Remove(t.Context(), "box"))
	over, err := a.isOver(0)
	require.NoError(t, err)
	assert.True(t, over)
}

// TestAPodHasTheFilesOfItsProgram: nothing is attached to this one.
func TestAPodHasTheFilesOfItsProgram(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"XDG_RUNTIME_DIR", "TMPDIR"} {
		t.Setenv(name, filepath.Join(dir, name))
	}
	opts := &wisbox.Options{}
	(&app{cache: filepath.Join(dir, "cache")}).inPod(opts)
	_, err := opts.Wasm.Prepared()
	require.ErrorIs(t, err, zip.ErrFormat)
}
