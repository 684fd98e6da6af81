package wasm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheSharedModule: an engine's own directory goes before it, even if the module there is damaged.
func TestTheSharedModule(t *testing.T) {
	t.Setenv(ModuleVariable, "")
	t.Setenv("RLM_WASM_PYTHON_PATH", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	own, err := DefaultCacheDir()
	require.NoError(t, err)
	sharedDir = t.TempDir()
	defer func() { sharedDir = SharedDir }()
	engine, err := New(&Options{})
	require.NoError(t, err)
	require.ErrorIs(t, engine.Find(), ErrNotInstalled)
	assert.Nil(t, InstalledFiles())

	shared := filepath.Join(sharedDir, moduleFile)
	require.NoError(t, os.WriteFile(shared, nil, 0o600))
	require.NotErrorIs(t, engine.Find(), ErrNotInstalled)
	assert.Nil(t, InstalledFiles(), "without its license")
	require.NoError(t, os.WriteFile(filepath.Join(sharedDir, licenseFile), nil, 0o600))
	assert.Equal(t, shared, InstalledFiles()[moduleFile])
	_, err = findSource("", own)
	require.ErrorContains(t, err, "damaged", "its digest is checked")

	require.NoError(t, os.MkdirAll(own, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(own, moduleFile), nil, 0o600))
	assert.Equal(t, filepath.Join(own, moduleFile), InstalledFiles()[moduleFile])
}
