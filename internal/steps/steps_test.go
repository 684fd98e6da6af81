package steps

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// stackOf returns the steps of a workspace with four files, of which a snapshot may have so many.
func stackOf(t *testing.T, entries int64, opts Options) *Stack {
	t.Helper()
	s, _ := stackAndWorkspace(t, entries, opts)
	return s
}

func stackAndWorkspace(t *testing.T, entries int64, opts Options) (*Stack, *os.Root) {
	t.Helper()
	root := func(name string) *os.Root {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		r, err := os.OpenRoot(dir)
		require.NoError(t, err)
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	workspace := root("workspace")
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, workspace.WriteFile(name, []byte(name), 0o600))
	}
	store, err := snapshot.New(&snapshot.Options{Workspace: workspace, Tmp: root("tmp"), Store: root("store"), Limits: snapshot.Limits{Entries: entries}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	opts.Store, opts.Log = store, slog.New(slog.DiscardHandler)
	return New(&opts), workspace
}

// A workspace that no snapshot can hold doesn't stop the work in it: the call says that it can't be undone. A call that
// must be rolled back if it fails is refused.
func TestACallRunsInAWorkspaceTooLargeForAStep(t *testing.T) {
	ran := 0
	do := func(context.Context) (*tool.Result, error) { ran++; return &tool.Result{Text: "done"}, nil }
	call := journal.Call{ID: "1", Tool: "shell_execute"}

	res, _, err := stackOf(t, 3, Options{Each: true}).Do(t.Context(), call, tool.ProgramEffect, do)
	require.NoError(t, err)
	assert.Contains(t, res.Text, "can't be undone: no step could be made before it: the workspace has more than 3 entries")

	_, _, err = stackOf(t, 3, Options{Rollback: true}).Do(t.Context(), call, tool.ProgramEffect, do)
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.ErrorContains(t, err, "the call was not run")

	res, _, err = stackOf(t, 10, Options{Each: true}).Do(t.Context(), call, tool.ProgramEffect, do)
	require.NoError(t, err)
	assert.Equal(t, "done", res.Text)
	assert.Equal(t, 2, ran)
}

// TestAFailedCallThatChangedAPartCanBeUndone: such as a copy into a full disk, or one whose client left.
func TestAFailedCallThatChangedAPartCanBeUndone(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		told bool // the call reports what it has changed
		left bool
	}{
		"full":            {tool.Errorf(tool.NoSpace, "full"), false, true},
		"cancelled":       {context.Canceled, false, true},
		"a broken stream": {tool.Errorf(tool.Invalid, "no archive"), true, true},
		"refused":         {tool.Errorf(tool.NoMatch, "no such text"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, workspace := stackAndWorkspace(t, 100, Options{Each: true})
			_, _, err := s.Do(t.Context(), journal.Call{ID: "earlier", Tool: "import"}, tool.FileEffect, func(context.Context) (*tool.Result, error) {
				return &tool.Result{Changes: []tool.Change{{Path: "a"}}}, workspace.WriteFile("a", []byte("earlier"), 0o600)
			})
			require.NoError(t, err)
			_, effects, err := s.Do(t.Context(), journal.Call{ID: "failed", Tool: "import"}, tool.FileEffect, func(context.Context) (*tool.Result, error) {
				if !c.left {
					return nil, c.err
				}
				require.NoError(t, workspace.WriteFile("a", []byte("a part"), 0o600))
				if c.told {
					return &tool.Result{Changes: []tool.Change{{Path: "a"}}}, c.err
				}
				return nil, c.err
			})
			require.Error(t, err)
			assert.Equal(t, c.left, len(effects.Changes) > 0)
			undone, err := s.Undo(t.Context(), "")
			require.NoError(t, err)
			want, content := "earlier", "a"
			if c.left {
				want, content = "failed", "earlier"
			}
			assert.Equal(t, want, undone.Call)
			is, err := workspace.ReadFile("a")
			require.NoError(t, err)
			assert.Equal(t, content, string(is))
		})
	}
}
