package wisbox_test

import (
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

// noise writes an incompressible file into the workspace, as a program would.
func noise(t *testing.T, s *wisbox.Session, name string, size int) {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content)
	require.NoError(t, os.WriteFile(filepath.Join(workspace(s), name), content, 0o644))
}

// stored returns the bytes that a session's snapshots take.
func stored(t *testing.T, s *wisbox.Session) (total int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(sessionDir(s), "snapshots"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, err := d.Info()
			require.NoError(t, err)
			total += info.Size()
		}
		return err
	}))
	return total
}

func TestTheSnapshotsOfASessionStayWithinTheirSpace(t *testing.T) {
	const space = 4 << 20
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true, SnapshotSpace: space}, func(t *testing.T, s *wisbox.Session) {
		for range 12 {
			noise(t, s, "f", 1<<20)
			script(t, s, "date +%N >g")
			require.LessOrEqual(t, stored(t, s), int64(space))
		}
		_, err := s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "(none)", content(t, s, "nothing"))
		in, err := s.Inspect(t.Context())
		require.NoError(t, err)
		require.NotNil(t, in.Snapshots)
		assert.EqualValues(t, space, in.Snapshots.Limit)
		assert.Positive(t, in.Snapshots.Steps)
		assert.InDelta(t, stored(t, s), in.Snapshots.Bytes, 1<<20)
	})
}

// If no step fits, a call that may need more space is refused; calls that free space, end a program
// or restore a state work, and report that they have no step.
func TestWhatFreesRoomNeedsNoStep(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true, SnapshotSpace: 1 << 20}, func(t *testing.T, s *wisbox.Session) {
		noise(t, s, "a", 600<<10)
		var made, started struct {
			ID      string `json:"snapshot_id"`
			Process string `json:"process_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(text(t, s, "snapshot_create", `{}`)), &made))
		text(t, s, "write_file", `{"file_path":"c","content":"1"}`)
		require.NoError(t, json.Unmarshal([]byte(text(t, s, "process_start", `{"script":"sleep 600"}`)), &started))
		noise(t, s, "b", 600<<10)

		_, err := call(t, s, "write_file", `{"file_path":"d","content":"1"}`)
		assert.Equal(t, tool.NoSpace, tool.KindOf(err))
		assert.ErrorContains(t, err, "the call was not run")
		assert.ErrorContains(t, err, "snapshot rm")
		_, err = call(t, s, "shell_execute", `{"script":"true"}`)
		assert.Equal(t, tool.NoSpace, tool.KindOf(err))
		text(t, s, "process_signal", `{"process_id":"`+started.Process+`","signal":"KILL"}`)

		done, err := s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Empty(t, done.Before)
		assert.Contains(t, done.Unkept, "no room for the snapshot")
		assert.Equal(t, "(none)", content(t, s, "b"))

		noise(t, s, "b", 600<<10)
		res, err := call(t, s, "rm", `{"path":"b"}`)
		require.NoError(t, err)
		assert.Contains(t, res.Text, "can't be undone")
		assert.Equal(t, "(none)", content(t, s, "b"))
		text(t, s, "write_file", `{"file_path":"d","content":"1"}`)

		noise(t, s, "b", 600<<10)
		res, err = call(t, s, "snapshot_restore", `{"snapshot_id":"`+made.ID+`"}`)
		require.NoError(t, err)
		assert.Contains(t, res.Text, "can't be undone")
		require.NoError(t, s.RemoveSnapshots(t.Context(), made.ID))
		noise(t, s, "b", 300<<10)
		text(t, s, "write_file", `{"file_path":"e","content":"1"}`)
	})
}

// A removal without a step can't be rolled back; one with a step is.
func TestARemovalWithRollbackNeedsNoStepEither(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{RollbackOnFailure: true, SnapshotSpace: 1 << 20}, func(t *testing.T, s *wisbox.Session) {
		noise(t, s, "a", 600<<10)
		text(t, s, "snapshot_create", `{}`)
		noise(t, s, "b", 600<<10)
		res, err := call(t, s, "rm", `{"path":"b"}`)
		require.NoError(t, err)
		assert.Contains(t, res.Text, "can't be undone")
		_, err = call(t, s, "rm", `{"path":"nothere"}`)
		assert.Equal(t, tool.NotFound, tool.KindOf(err))
	})
}

// The snapshots' tools check the host's free space, not the workspace's.
func TestASignalLeavesNoStep(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		var p struct {
			ID string `json:"process_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(text(t, s, "process_start", `{"script":"sleep 600"}`)), &p))
		steps := func() int {
			in, err := s.Inspect(t.Context())
			require.NoError(t, err)
			return in.Snapshots.Steps
		}
		before := steps()
		text(t, s, "process_signal", `{"process_id":"`+p.ID+`","signal":"KILL"}`)
		assert.Equal(t, before, steps())
	})
}
