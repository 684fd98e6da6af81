package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"wisbox": main}) }

// exitcode runs a command that must end with a code: exitcode CODE COMMAND...
func exitcode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}

// TestScripts runs the command line where no Podman is needed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("WISBOX_UPDATE") != "",
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"converse": converse, "exitcode": exitcode},
		Setup: func(e *testscript.Env) error {
			e.Setenv("WISBOX_CACHE", e.WorkDir+"/cache")
			e.Setenv("XDG_RUNTIME_DIR", "")
			e.Setenv("PODMAN_BASE_URL", "unix:///run/wisbox-no-such.sock")
			return nil
		},
	})
}
