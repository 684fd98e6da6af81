package wasm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
)

// TestListFilesListsTheWorkspace: paths and no contents, as in the other engines.
func TestListFilesListsTheWorkspace(t *testing.T) {
	dir := t.TempDir()
	files := openFiles(t, dir)
	workspace := filepath.Join(dir, "workspace")
	for _, name := range []string{"a", "d/b", "d/e/c", "workspace/x"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(workspace, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(workspace, name), []byte("text of "+name), 0o600))
	}
	require.NoError(t, os.Truncate(filepath.Join(workspace, "a"), 1<<40)) // nobody could read it
	require.NoError(t, os.MkdirAll(filepath.Join(workspace, "many"), 0o755))
	s := engine(t).Session(files)
	value := func(code string) string {
		resp, err := s.Evaluate(context.Background(), evaltool.Request{Code: code, Timeout: 10 * time.Second})
		require.NoError(t, err)
		require.NotNil(t, resp.Value, "%s %v", resp.Stderr, resp.Notes)
		return *resp.Value
	}
	assert.Equal(t, "['a', 'd/b', 'd/e/c', 'workspace/x']", value("list_files()"))
	assert.Equal(t, "['d/b', 'd/e/c']", value("list_files('/workspace/d/')"))
	assert.Equal(t, "['a', 'd/b', 'd/e/c', 'd/new', 'workspace/x']", value("write_text('d/new', '1')\nlist_files('/')"))
	assert.Equal(t, "['n/new']", value("write_text('n/new', '1')\nlist_files('n')"))
	assert.Equal(t, "('text of workspace/x', ['workspace/x'])", value("(read_text('/workspace/workspace/x'), list_files('/workspace/workspace'))"))
	failed := func(code string) string {
		return value("try:\n    " + code + "\nexcept Exception as e: said = type(e).__name__ + ': ' + str(e)\nsaid")
	}
	assert.Contains(t, failed("list_files('nothing')"), "FileNotFoundError")
	assert.Contains(t, failed("list_files('a')"), "NotADirectoryError")
	assert.Contains(t, failed("list_files('..')"), "ValueError")
	for i := range 10_001 {
		require.NoError(t, os.WriteFile(filepath.Join(workspace, "many", fmt.Sprint(i)), nil, 0o600))
	}
	assert.Contains(t, failed("list_files()"), "ValueError: more than 10000 files: name a directory further down")
	assert.Equal(t, "['d/b', 'd/e/c']", value("list_files('d')"))
}
