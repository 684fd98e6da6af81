package snapshot

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// A program can keep others from opening its file by a lease. Then taking a snapshot is busy, but comparing, restoring
// and removing still work.
func TestALeaseStopsNoRestore(t *testing.T) {
	b := newBench(t)
	b.write("d/f", "v1")
	want := tree(t, b.ws)
	id := b.create().ID
	b.write("d/f", "by a program")
	hosttest.Lease(t, filepath.Join(b.ws, "d/f"), unix.F_WRLCK)

	_, err := b.store.Create(context.Background(), nil)
	assert.Equal(t, tool.Busy, tool.KindOf(err), causeOf(err))
	assert.ErrorContains(t, err, "d/f")
	found, err := b.store.Changed(context.Background(), id, 10, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"d/f"}, found.Present)
	d, err := b.store.Diff(context.Background(), id, "")
	require.NoError(t, err)
	assert.Len(t, d.Changed, 1)
	b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
	require.NoError(t, b.store.Remove(context.Background(), id))
}
