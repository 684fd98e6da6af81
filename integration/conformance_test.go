package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/conformance"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// cases is the directory of the conformance cases; its README names the files.
var cases = conformance.Dir("testdata/cases")

// slowCases are floods, races, storms, digests of large trees and cases that wait: most of the time of all cases.
var slowCases = regexp.MustCompile(`^hostile\.(x|race)\.|\.100k$|^(own\.)?digest\.|^own\.rlm\.grep\.slow$|^snapshots\.(texts|scattered|live|many)$|^(lisp|python|own\.notebook\.\w+|own\.python\.\w+)\.(timeout|kept|interrupt)$|^hostile\.eval\.|\.(sleep|endless|huge|readers)$`)

// TestConformance runs the case files against `wisbox mcp` on a real Podman.
func TestConformance(t *testing.T) {
	conform(t, func(c *conformance.Case) bool { return !slowCases.MatchString(c.ID) })
}

func TestConformanceOfSlowCases(t *testing.T) {
	hosttest.Slow(t)
	conform(t, func(c *conformance.Case) bool { return slowCases.MatchString(c.ID) })
}

func conform(t *testing.T, chosen func(*conformance.Case) bool) {
	need(t)
	bin := binary(t)
	target := func(t *testing.T) conformance.Target {
		cache := filepath.Join(t.TempDir(), "state")
		return &conformance.Stdio{
			Command: []string{bin, "mcp"},
			Env: append(os.Environ(),
				"WISBOX_CACHE="+cache, "SECRET_TOKEN=WISBOX-CANARY-env", "http_proxy=http://user:password@proxy.example:1"),
			Overlay:    func() string { return newestWorkspace(cache) },
			EndsWithin: time.Minute,
		}
	}
	files, err := conformance.Files(cases)
	require.NoError(t, err)
	leftOut := leftOut(memoryHolds(t))
	const slack = 6 // a busy machine may be slow: what the limits find takes minutes, or doesn't end
	conformance.Run(t, target, &conformance.Options{Parallel: true, Slack: slack, Skip: func(c *conformance.Case) string {
		if !chosen(c) {
			return "the other test of conformance runs it"
		}
		return leftOut(c)
	}}, files...)
}

// memoryHolds reports whether this host limits a session's memory. Rootless Podman can't on cgroup v1, and the session
// reports that.
func memoryHolds(t *testing.T) bool {
	t.Helper()
	return enforced(t, open(t, &wisbox.SessionOptions{}))["memory"].Enforced
}

// memoryCases allocate more memory than a session has. Without a limit, their size or their time limit ends them,
// whichever comes first.
var memoryCases = map[string]bool{"hostile.eval.mem": true}

// gvisorCases examine things that differ on gVisor, see docs/gvisor.md.
var gvisorCases = map[string]string{
	"shell.user":     "no NoNewPrivs in /proc/self/status",
	"shell.readonly": "a refused write has another text",
	"hostile.x.mem":  "memory over the limit ends the sandbox, or gVisor kills with no evidence",

	"snapshots.scattered": "the blocks of a file are gVisor's own count",

	"files.ls.other":     "a FIFO or socket that a program makes is gVisor's own: the tools see none",
	"files.read.fifo":    "likewise",
	"files.read.sock":    "likewise",
	"hostile.read.fifo":  "likewise",
	"hostile.write.fifo": "likewise",
}

// replacedCases state a rule of the shared contract that wisbox has replaced by a better one, with the page that says why.
var replacedCases = map[string]string{
	"files.path.trim": "blanks are part of a name: docs/adr/0043; own.path.blanks is the case",
}

func leftOut(memoryHolds bool) func(*conformance.Case) string {
	return func(c *conformance.Case) string {
		if reason, differs := gvisorCases[c.ID]; differs && env.isolation == sandbox.IsolationGVisor {
			return "gVisor: " + reason
		}
		if reason, replaced := replacedCases[c.ID]; replaced {
			return reason
		}
		if memoryCases[c.ID] && !memoryHolds {
			return "this host doesn't limit a session's memory, and wisbox says so"
		}
		return needsMissingTool(c)
	}
}

// needsMissingTool returns the tool that a case needs and this wisbox doesn't have, or "".
func needsMissingTool(c *conformance.Case) string {
	set, _ := wisbox.ToolProfile("vfs")
	names := []string{c.Tool}
	for _, s := range c.Steps {
		names = append(names, s.Tool)
	}
	for _, name := range names {
		if _, ok := set.Lookup(name); name != "" && !ok {
			return fmt.Sprintf("unknown tool %s in this version", name)
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
