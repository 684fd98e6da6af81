package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/conformance"
	"github.com/wisbox/wisbox/sandbox"
)

// TestConformance runs the shared cases, and our own, against `wisbox mcp` on a
// real Podman.
func TestConformance(t *testing.T) {
	need(t)
	bin := binary(t)
	cache := filepath.Join(t.TempDir(), "state")
	target := &conformance.Stdio{
		Command: []string{bin, "mcp"},
		Env: append(os.Environ(),
			"WISBOX_CACHE="+cache, "SECRET_TOKEN=WISBOX-CANARY-env", "http_proxy=http://user:password@proxy.example:1"),
		Overlay: func(int) string { return newestWorkspace(cache) },
	}
	files, reason := conformance.SharedFiles()
	if reason != "" {
		require.Empty(t, os.Getenv("CI"), "CI must have the shared cases: %s", reason)
		t.Log("the shared cases are left out: ", reason)
	}
	own, err := filepath.Glob("testdata/cases/*.jsonl")
	require.NoError(t, err)
	summary := conformance.Run(t, target, &conformance.Options{Skip: leftOut}, append(files, own...)...)
	t.Log(summary)
}

// gvisorCases look at what gVisor has in another form, see docs/gvisor.md.
var gvisorCases = map[string]string{
	"shell.user":     "no NoNewPrivs in /proc/self/status",
	"shell.readonly": "a refused write has another text",
	"hostile.x.mem":  "memory over the limit ends the sandbox, or gVisor kills with no evidence",

	"files.ls.other":     "a FIFO or socket that a program makes is gVisor's own: the tools see none",
	"files.read.fifo":    "likewise",
	"files.read.sock":    "likewise",
	"hostile.read.fifo":  "likewise",
	"hostile.write.fifo": "likewise",
}

func leftOut(c *conformance.Case) string {
	if reason, differs := gvisorCases[c.ID]; differs && env.isolation == sandbox.IsolationGVisor {
		return "gVisor: " + reason
	}
	return needsMissingTool(c)
}

// needsMissingTool leaves out the cases of tools that this wisbox doesn't have.
func needsMissingTool(c *conformance.Case) string {
	set, _ := wisbox.ToolProfile("vfs")
	names := []string{c.Tool}
	for _, s := range c.Steps {
		names = append(names, s.Tool)
	}
	for _, name := range names {
		if _, ok := set.Lookup(name); name != "" && !ok {
			return fmt.Sprintf("there is no tool %s in this version", name)
		}
	}
	return ""
}

func newestWorkspace(cache string) string {
	all, _ := filepath.Glob(filepath.Join(cache, "sessions", "*", "workspace"))
	newest := ""
	for _, dir := range all {
		if newest == "" || filepath.Base(filepath.Dir(dir)) > filepath.Base(filepath.Dir(newest)) {
			newest = dir // names are ULIDs: they sort by time
		}
	}
	return newest
}
