package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/audit"
)

func BenchmarkAppend(b *testing.B) {
	bench := newBench(b)
	l, err := audit.Open(bench.root, name, nil)
	require.NoError(b, err)
	defer l.Close()
	record := map[string]any{"time": "2026-11-21T15:00:00Z", "tool": "read_file", "path": "src/main.go", "outcome": "ok", "duration_ns": 12345}
	for b.Loop() {
		require.NoError(b, l.Append(record))
	}
}
