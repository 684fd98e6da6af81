package pods

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/conformance"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// notInPod maps the cases that can't pass in a Pod to the reasons.
var notInPod = map[string]string{
	"hostile.read.link.sibling": "it plants a directory beside the workspace, which no process of this machine reaches in a Pod",
}

// filesInEachChange lists the files whose shared-session cases run on each change; make nightly runs all.
var filesInEachChange = []string{"shell.jsonl"}

// TestConformance runs the case files against `wisbox mcp` with sessions in Pods.
func TestConformance(t *testing.T) {
	n := newNamespace(t)
	target := &conformance.Stdio{
		Command: []string{hosttest.Binary(t), "mcp"},
		Env: append(os.Environ(), "KUBECONFIG="+hosttest.Kubeconfig(t), "WISBOX_REMOTE="+n.address, "WISBOX_CACHE="+filepath.Join(n.dir, "cache"), "XDG_CONFIG_HOME="+n.dir,
			"SECRET_TOKEN=WISBOX-CANARY-env", "http_proxy=http://user:password@proxy.example:1"),
		EndsWithin: time.Minute,
	}
	files, err := conformance.Files(conformance.Dir("../testdata/cases"))
	require.NoError(t, err)
	all := os.Getenv(nightlyVariable) != ""
	files = slices.DeleteFunc(files, func(f string) bool { return !all && !slices.Contains(filesInEachChange, filepath.Base(f)) })
	conformance.Run(t, func(*testing.T) conformance.Target { return target }, &conformance.Options{Skip: func(c *conformance.Case) string {
		switch {
		case notInPod[c.ID] != "":
			return "a Pod: " + notInPod[c.ID]
		case !all && (c.Fresh || len(c.Flags) > 0 || c.HostSetup != ""):
			return "it needs a Pod of its own: make nightly"
		}
		return ""
	}}, files...)
}

// TestReasonsNameCases checks that each exception names an existing case, since readers take each for a
// gap.
func TestReasonsNameCases(t *testing.T) {
	files, err := conformance.Files(conformance.Dir("../testdata/cases"))
	require.NoError(t, err)
	known := map[string]bool{}
	for _, f := range files {
		cases, err := conformance.Load(f)
		require.NoError(t, err)
		for _, c := range cases {
			known[c.ID] = true
		}
	}
	for id := range notInPod {
		require.True(t, known[id], id)
	}
	for name := range notInPods {
		require.True(t, strings.HasSuffix(name, ".txtar"))
		require.FileExists(t, filepath.Join("../testdata/script", name))
	}
}
