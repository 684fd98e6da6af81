package integration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// TestCLI runs scripts of the command line on real Podman. The binary is that of `make build`, or $WISBOX_BIN.
func TestCLI(t *testing.T) {
	need(t)
	bin := binary(t)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("WISBOX_UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Defer(func() { hosttest.UnmountBelow(e.WorkDir) })
			e.Setenv("PATH", filepath.Dir(bin)+":"+e.Getenv("PATH"))
			e.Setenv("WISBOX_CACHE", e.WorkDir+"/cache")
			e.Setenv("HOME", os.Getenv("HOME"))
			e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/xdg")
			e.Setenv("XDG_RUNTIME_DIR", os.Getenv("XDG_RUNTIME_DIR"))
			return linkPodmans(e.WorkDir + "/xdg")
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"quiet": hosttest.Quiet[*testscript.TestScript]},
	})
}

// linkPodmans creates a configuration directory with Podman's configuration and none of wisbox.
func linkPodmans(dir string) error {
	own, err := os.UserConfigDir()
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(dir, 0o700), os.Symlink(filepath.Join(own, "containers"), filepath.Join(dir, "containers")))
}

var binary = hosttest.Binary
