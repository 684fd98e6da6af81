package wasm_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
)

// preparedFiles returns the files of the module that is installed for the tests, with the name of the compiled one.
func preparedFiles(t *testing.T) (files map[string]string, state, compiled string) {
	t.Helper()
	version := engine(t).Version()
	files, err := wasm.PreparedFiles(t.Context(), &wasm.Options{})
	require.NoError(t, err)
	require.Len(t, files, 2)
	for name := range files {
		if name != version+".state" {
			compiled = name
		}
	}
	require.True(t, strings.HasPrefix(compiled, version+".compiled/wazero-"), compiled)
	return files, version + ".state", compiled
}

// modulePath returns the path of the module that is installed for the tests.
func modulePath(t *testing.T) string {
	t.Helper()
	needModule(t)
	for name, path := range wasm.InstalledFiles() {
		if filepath.Ext(name) == ".wasm" {
			return path
		}
	}
	require.Fail(t, "the module isn't there")
	return ""
}

// opened is a file system that records its opened files and its close.
type opened struct {
	fs.FS
	mu     sync.Mutex
	names  []string
	closed bool
}

// Open implements fs.FS.
func (o *opened) Open(name string) (fs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = append(o.names, name)
	return o.FS.Open(name)
}

// Close implements io.Closer.
func (o *opened) Close() error {
	o.closed = true
	return nil
}

// TestPreparedFilesSpareCompiling: an engine with an empty directory takes them, once.
func TestPreparedFilesSpareCompiling(t *testing.T) {
	files, state, compiled := preparedFiles(t)
	from := &opened{FS: os.DirFS(filepath.Dir(files[state]))}
	dir := t.TempDir()
	opts := &wasm.Options{CacheDir: dir, Module: modulePath(t), Prepared: func() (fs.FS, error) { return from, nil }}
	resp := evaluate(t, newEngine(t, opts), evaltool.Request{Code: "6 * 7"})
	assert.Equal(t, "42", *resp.Value)
	assert.True(t, slices.Contains(from.names, state) && slices.Contains(from.names, compiled) && from.closed, "%v", from.names)
	first, err := os.Stat(filepath.Join(dir, filepath.FromSlash(compiled)))
	require.NoError(t, err)
	last, err := os.Stat(filepath.Join(dir, state))
	require.NoError(t, err)
	assert.False(t, first.ModTime().After(last.ModTime()), "nothing was compiled after the state was there")

	from.names = nil
	resp = evaluate(t, newEngine(t, opts), evaltool.Request{Code: "6 * 7"})
	assert.Equal(t, "42", *resp.Value)
	assert.NotContains(t, from.names, compiled, "the directory has them already")
}
