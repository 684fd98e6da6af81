package podman

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

func TestABuildThatTakesTheDiskEnds(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, checkSpace(dir, 0, 1), "more is free than at the beginning")
	assert.ErrorIs(t, checkSpace(dir, math.MaxInt64, 1), sandbox.ErrInvalid)
	assert.NoError(t, checkSpace("/nowhere/at/all", math.MaxInt64, 1), "the store is elsewhere")

	ctx, tooMuch, stop := boundDisk(t.Context(), dir, math.MaxInt64)
	assert.NoError(t, ctx.Err())
	stop()
	assert.NoError(t, tooMuch(), "it ended by itself")
	ctx, tooMuch, stop = boundDisk(t.Context(), "", 1)
	defer stop()
	assert.Equal(t, t.Context(), ctx)
	require.NoError(t, tooMuch())
	assert.NoError(t, ctx.Err())
}
