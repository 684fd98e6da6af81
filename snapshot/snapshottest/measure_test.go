package snapshottest

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The measures run on a small tree here, and on the whole one where the variable asks.
func TestTheMeasuresRun(t *testing.T) {
	opts := &Options{Files: 200, Bytes: 1_000_000, Snapshots: 2}
	if os.Getenv("WISBOX_MEASURE") != "" {
		opts = nil
	}
	rows, err := Measure(context.Background(), t.TempDir(), opts)
	require.NoError(t, err)
	assert.Len(t, rows, 5)
	for _, r := range rows {
		t.Logf("%-50s %9.3f %s  %s %9.3f  %.1fx (bar %.1fx, %v)", r.What, r.Ours, r.Unit, r.PeerName, r.Peer, r.Ratio(), r.Bar, r.Met())
	}
}
