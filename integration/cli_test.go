package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestCLI runs scripts of the command line on real Podman. The binary is the
// one that `make build` made, or $WISBOX_BIN.
func TestCLI(t *testing.T) {
	need(t)
	bin := binary(t)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("WISBOX_UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(bin)+":"+e.Getenv("PATH"))
			e.Setenv("WISBOX_CACHE", e.WorkDir+"/cache")
			e.Setenv("HOME", os.Getenv("HOME"))
			e.Setenv("XDG_RUNTIME_DIR", os.Getenv("XDG_RUNTIME_DIR"))
			return nil
		},
	})
}

func binary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("WISBOX_BIN")
	if bin == "" {
		bin = "../bin/wisbox"
	}
	bin, err := filepath.Abs(bin)
	require.NoError(t, err)
	require.FileExists(t, bin, "build it first: make build")
	return bin
}
