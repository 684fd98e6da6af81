package wasm_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/tool"
)

func TestOnlyThePinnedArchiveIsInstalled(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"another archive": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "not it") },
		"missing":         http.NotFound,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handle)
			defer server.Close()
			dir := filepath.Join(t.TempDir(), "cache")
			_, err := wasm.Install(context.Background(), &wasm.InstallOptions{Dir: dir, URL: server.URL})
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			assert.NotContains(t, err.Error(), dir)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, entries)
		})
	}
}

func TestAnInstalledModuleIsNotFetchedAgain(t *testing.T) {
	needModule(t)
	again, err := wasm.Install(context.Background(), &wasm.InstallOptions{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	assert.False(t, again.Fetched)
	assert.FileExists(t, again.Path)
	assert.FileExists(t, again.License)
}

func TestAMissingModuleIsUnsupportedAndSaysBothWays(t *testing.T) {
	t.Setenv(wasm.ModuleVariable, filepath.Join(t.TempDir(), "none"))
	e, err := wasm.New(nil)
	require.NoError(t, err)
	_, err = e.Session(nil).Evaluate(context.Background(), evaltool.Request{Code: "1", Timeout: time.Second})
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	assert.ErrorContains(t, err, "wisbox lab wasm install")
	assert.ErrorContains(t, err, wasm.ModuleVariable)
	assert.Empty(t, e.Version())
}

func TestWhatIsNoModuleIsUnsupported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "python.wasm")
	require.NoError(t, os.WriteFile(path, []byte("\x00asm\x01\x00\x00\x00\x01\xff"), 0o600))
	e, err := wasm.New(&wasm.Options{Module: path, CacheDir: filepath.Join(t.TempDir(), "cache")})
	require.NoError(t, err)
	assert.Equal(t, tool.Unsupported, tool.KindOf(e.Warm(context.Background())))
}

func TestACacheThatOthersMayWriteToIsRefused(t *testing.T) {
	needModule(t)
	installed, err := install()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	e, err := wasm.New(&wasm.Options{Module: installed.Path, CacheDir: dir})
	require.NoError(t, err)
	assert.Equal(t, tool.Unavailable, tool.KindOf(e.Warm(context.Background())))
}
