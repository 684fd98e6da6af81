package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// notInPods maps the scripts of integration/testdata/script that can't pass in Pods to the reasons.
var notInPods = map[string]string{
	"commands.txtar":   "commands of this machine: images, metrics, prune, serve; no freezer for pause",
	"killed.txtar":     "it kills the holder by its number on this machine: integration/cluster does that in a Pod",
	"newcomer.txtar":   "a clone, and the proof of a log, which are of this machine",
	"processes.txtar":  "names are completed of this machine alone: a key doesn't wait for a cluster",
	"rename.txtar":     "a Pod has its session's name for good",
	"restricted.txtar": "it takes the container away to see WebAssembly do its work; a Pod is both",
}

// inEachChange lists the scripts with the best coverage for their time; make nightly runs all.
var inEachChange = map[string]bool{"cp.txtar": true, "run.txtar": true, "session.txtar": true}

// TestScripts runs the scripts of this directory and the suitable ones for Podman, as a user who has
// selected the cluster. Each script has its own namespace.
func TestScripts(t *testing.T) {
	hosttest.Kubeconfig(t)
	bin := hosttest.Binary(t)
	files, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
	podmans, err := filepath.Glob("../testdata/script/*.txtar")
	require.NoError(t, err)
	for _, f := range podmans {
		name := filepath.Base(f)
		if notInPods[name] == "" && (inEachChange[name] || os.Getenv(nightlyVariable) != "") {
			files = append(files, f)
		}
	}
	testscript.Run(t, testscript.Params{
		Files:         files,
		UpdateScripts: os.Getenv("WISBOX_UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			n := newNamespace(t)
			for name, value := range map[string]string{
				"PATH": filepath.Dir(bin) + ":" + e.Getenv("PATH"), "HOME": e.WorkDir,
				"WISBOX_CACHE": e.WorkDir + "/cache", "XDG_CONFIG_HOME": e.WorkDir + "/xdg", "XDG_RUNTIME_DIR": os.Getenv("XDG_RUNTIME_DIR"),
				"KUBECONFIG": hosttest.Kubeconfig(t), "WISBOX_REMOTE": n.address, "PORT": fmt.Sprint(hosttest.FreePort(t)),
			} {
				e.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"quiet": hosttest.Quiet[*testscript.TestScript]},
	})
}
