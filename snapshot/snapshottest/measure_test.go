package snapshottest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheMeasuresRun(t *testing.T) {
	out, err := Measure(t.Context(), t.TempDir(), &Options{Files: 200, Bytes: 1_000_000, Snapshots: 2, Rounds: 1})
	require.NoError(t, err)
	assert.Len(t, out.Rows, 4)
	for _, r := range out.Rows {
		assert.NotEmpty(t, r.Ours, r.What)
		assert.Len(t, r.Peer, len(r.Ours), r.What)
	}
	assert.Positive(t, out.Store)
	assert.Positive(t, out.Git)
}
