package vfs_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// TestALeasedFileIsBusyAndStopsNothing has a process that holds leases on files and never releases
// them.
func TestALeasedFileIsBusyAndStopsNothing(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"d/f", "over", "gone", "dir/f"} {
		w.file(name, "word\n")
		hosttest.Lease(t, w.at(name), unix.F_WRLCK)
	}
	w.file("d/free", "word\n")
	start := time.Now()
	for _, call := range []struct{ tool, args string }{
		{"read_file", `{"file_path":"d/f"}`},
		{"read_file", `{"file_path":"d/f","encoding":"base64"}`},
		{"edit_file", `{"file_path":"d/f","old_string":"word","new_string":"x"}`},
		{"write_file", `{"file_path":"d/f","content":"x","mode":"append"}`},
		{"grep", `{"pattern":"word","path":"d/f"}`},
	} {
		assert.Contains(t, w.refused(tool.Busy, call.tool, call.args).Message, "lease")
	}
	found := w.ok("grep", `{"pattern":"word","path":"d"}`)
	assert.Equal(t, []any{1.0, 1.0}, []any{found["files_searched"], found["files_skipped"]})
	w.ok("ls", `{"path":"d"}`)
	w.ok("glob", `{"pattern":"**"}`)
	w.ok("write_file", `{"file_path":"over","content":"new","mode":"overwrite"}`)
	w.ok("rm", `{"path":"gone"}`)
	w.ok("rm", `{"path":"dir"}`)
	var out bytes.Buffer
	moved, err := w.fs.Export(context.Background(), "d", &out)
	require.NoError(t, err)
	assert.Equal(t, 1, moved.Files)
	require.Len(t, moved.Skipped, 1)
	assert.Contains(t, moved.Skipped[0].Reason, "lease")
	_, err = w.fs.FS().Open("d/f")
	assert.Error(t, err)
	assert.Less(t, time.Since(start), 30*time.Second)
}

// TestALeasedFileIsReadOnceTheLeaseIsGivenUp also has a caller that has left.
func TestALeasedFileIsReadOnceTheLeaseIsGivenUp(t *testing.T) {
	w := newWorld(t)
	w.file("f", "word")
	release := hosttest.Lease(t, w.at("f"), unix.F_WRLCK)
	_, _, err := w.fs.ReadWhole(context.Background(), "f", 0)
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = w.fs.ReadWhole(ctx, "f", 0)
	assert.Error(t, err)
	release()
	data, _, err := w.fs.ReadWhole(context.Background(), "f", 0)
	require.NoError(t, err)
	assert.Equal(t, "word", string(data))
}
