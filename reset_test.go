package wisbox_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/snapshot"
)

func filesOf(t *testing.T, s *wisbox.Session) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(s.Files(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := fs.ReadFile(s.Files(), p)
		all[p] = string(raw)
		return err
	}))
	return all
}

// TestAResetThatFailsChangesNothing: the mount's source is gone, or something else is in its place. Files
// and programs stay, and once the source is back a reset works, and its snapshot has the old files.
func TestAResetThatFailsChangesNothing(t *testing.T) {
	for _, kind := range []string{"local", "held"} {
		t.Run(kind, func(t *testing.T) {
			dir, opts := project(t)
			s := sessionOf(t, kind, opts)
			script(t, s, "echo work > p/a; mkdir d; echo 1 > d/x")
			text(t, s, "process_start", `{"commands":["cat"]}`)
			before := filesOf(t, s)
			away := filepath.Join(t.TempDir(), "away")
			require.NoError(t, os.Rename(dir, away))
			for _, breakIt := range []func() error{
				func() error { return nil },
				func() error { return unix.Mkfifo(dir, 0o600) },
			} {
				require.NoError(t, breakIt())
				require.Error(t, s.Reset(t.Context()))
				assert.Equal(t, before, filesOf(t, s))
				_ = os.Remove(dir)
			}
			running, err := s.Processes(t.Context())
			require.NoError(t, err)
			require.Len(t, running, 1)
			assert.Equal(t, "running", string(running[0].State))
			require.NoError(t, os.Rename(away, dir))
			diff, err := s.Diff(t.Context(), nil)
			require.NoError(t, err)
			assert.Len(t, diff.Changes, 2)

			require.NoError(t, s.Reset(t.Context()))
			assert.Equal(t, map[string]string{"p/a": "1\n", "p/b": "1\n"}, filesOf(t, s))
			diff, err = s.Diff(t.Context(), nil)
			require.NoError(t, err)
			assert.Empty(t, diff.Changes)
			text(t, s, "snapshot_restore", `{"snapshot_id":"before reset"}`)
			assert.Equal(t, before, filesOf(t, s))
		})
	}
}

// TestAResetOfADeletedWorkspaceWorks, although nothing is left to keep.
func TestAResetOfADeletedWorkspaceWorks(t *testing.T) {
	_, opts := project(t)
	s := session(t, opts)
	script(t, s, "echo work > x")
	require.NoError(t, os.RemoveAll(s.WorkspacePath()))
	require.NoError(t, s.Reset(t.Context()))
	assert.Len(t, filesOf(t, s), 2)
	var list snapshot.Listing
	raw, err := s.Call(t.Context(), "snapshot_list", nil)
	require.NoError(t, err)
	b, err := json.Marshal(raw.Value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &list))
}
