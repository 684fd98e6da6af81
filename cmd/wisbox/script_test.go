package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"wisbox": main}) }

// TestScripts runs the command line where no Podman is needed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("WISBOX_UPDATE") != "",
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"converse": converse},
		Setup: func(e *testscript.Env) error {
			e.Setenv("WISBOX_CACHE", e.WorkDir+"/cache")
			e.Setenv("XDG_RUNTIME_DIR", "")
			e.Setenv("PODMAN_BASE_URL", "unix:///run/wisbox-no-such.sock")
			return nil
		},
	})
}
