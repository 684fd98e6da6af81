package wisbox_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	gotoken "go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/wisbox/wisbox"

// layers lists the packages of ours that each package may import: never one of a higher layer. A
// package must be in the list.
var layers = map[string][]string{
	// Leaves.
	"tool": {"internal/clip", "tool/answer"}, "tool/answer": {}, "sandbox": {}, "digest/digesttest": {},
	"internal/audit": {"internal/retry"}, "internal/clip": {}, "internal/exposition": {}, "internal/gate": {}, "internal/hosttest": {}, "internal/lock": {}, "internal/oneline": {}, "internal/patience": {}, "internal/pathname": {}, "internal/pool": {}, "internal/properties": {},
	"internal/quota": {"internal/retry", "internal/sys"}, "internal/redact": {}, "internal/scratch": {}, "internal/settings": {}, "internal/sharing": {}, "internal/rundir": {}, "internal/undo": {}, "podman/internal/mkseccomp": {}, "podman/internal/see_readme_for_build_tags": {},
	"internal/sys": {"internal/sys/internal/needs_linux_or_macos_see_docs_install"}, "internal/sys/internal/needs_linux_or_macos_see_docs_install": {},
	"internal/beat": {}, "internal/byproduct": {}, "internal/gitignore": {}, "internal/leftout": {}, "internal/holes": {}, "internal/mcptask": {}, "internal/relay": {}, "internal/retry": {}, "agent/native": {"internal/retry", "internal/sys"}, "agent/native/internal/mkagent": {},

	// Over one leaf or two.
	"internal/builds":      {"tool"},
	"internal/beneath":     {"internal/retry", "internal/sys", "tool/answer", "sandbox"},
	"internal/budget":      {"tool"},
	"internal/capture":     {"sandbox"},
	"internal/conformance": {"tool"},
	"internal/glob":        {"internal/pathname", "tool"},
	"internal/interp":      {"sandbox"},
	"internal/kept":        {"internal/lock", "tool"},
	"internal/plumbing":    {"internal/scratch", "internal/sys", "tool"},
	"internal/syscalltest": {"internal/retry", "internal/hosttest"},
	"internal/timing":      {},
	"internal/toolerr":     {"sandbox", "tool"},
	"sandbox/sandboxtest":  {"internal/retry", "sandbox"},

	"internal/config":       {"hostmount", "internal/clip", "internal/jsonfile", "tool"},
	"internal/devcontainer": {"tool"},
	"internal/far":          {"internal/clip", "internal/jsonfile", "internal/lock", "internal/relay", "sandbox", "tool"},
	"internal/jsonfile":     {"tool/answer"}, "internal/apikeys": {"internal/jsonfile", "tool"},
	"internal/registry": {"internal/jsonfile", "internal/lock", "internal/pool", "internal/undo", "tool"}, "internal/registry/registrytest": {"internal/registry", "tool"},
	"internal/podbook": {"cluster", "internal/registry", "internal/retry", "tool"},

	"httpguard": {"internal/rundir", "tool"}, "internal/ports": {"httpguard", "internal/relay", "tool"}, "internal/sshd": {"internal/relay", "sandbox", "tool"},

	// The network, for sandboxes that have none.
	"egress/policy": {},
	"egress":        {"egress/policy"},

	// Files, and stored states of them.
	"overlay":               {"internal/audit", "internal/beneath", "internal/lock", "internal/quota", "internal/stateroot", "internal/sys", "tool/answer", "sandbox"},
	"hostmount":             {"internal/retry", "internal/beneath", "internal/glob", "internal/holes", "internal/leftout", "internal/pathname", "internal/sys", "tool", "sandbox"},
	"vfs":                   {"internal/retry", "internal/beneath", "internal/budget", "internal/glob", "internal/holes", "internal/leftout", "internal/lock", "internal/oneline", "internal/pathname", "internal/sys", "tool", "sandbox"},
	"snapshot":              {"internal/retry", "internal/beneath", "internal/budget", "internal/clip", "internal/holes", "internal/lock", "internal/sys", "tool", "sandbox"},
	"snapshot/snapshottest": {"snapshot"},
	"digest":                {"internal/budget", "tool"},
	"internal/packing":      {"hostmount", "internal/jsonfile", "internal/scratch", "overlay", "tool"},
	"internal/templates":    {"internal/jsonfile", "internal/undo", "snapshot", "tool"},

	// Programs.
	"agent/wire": {}, "agent/inside/kernel": {"agent/wire", "internal/retry"}, "agent/inside/python": {"agent/inside/kernel"},
	"agent/inside/monitor": {"internal/retry", "agent/inside/kernel", "agent/inside/python", "agent/wire"},
	"agent/inside/serve":   {"agent/inside/kernel", "agent/inside/monitor", "agent/inside/python", "agent/wire", "internal/retry"},
	"agent/inside":         {"agent/inside/files", "agent/inside/kernel", "agent/inside/monitor", "agent/inside/serve"},
	"agent/inside/cmd":     {"agent/inside"},
	"agent/agenttest":      {"agent/inside"},
	"agent":                {"agent/wire", "internal/lock", "sandbox"},
	"agent/resident":       {"agent", "internal/retry", "internal/sys", "sandbox"},
	"podman/podmantest":    {"agent/agenttest"},
	"agent/filewire":       {},
	"agent/inside/files":   {"agent/filewire"},
	"agent/files":          {"agent/filewire", "sandbox"},

	"podman":          {"agent", "agent/files", "agent/native", "agent/resident", "agent/wire", "internal/lock", "internal/retry", "internal/rundir", "internal/undo", "podman/internal/see_readme_for_build_tags", "sandbox", "tool"},
	"internal/beside": {"agent", "agent/files", "agent/native", "agent/resident", "internal/jsonfile", "sandbox"},
	"images":          {"evaltool/lisp/driver", "internal/builds", "internal/retry", "sandbox", "tool"},
	"shelltool":       {"internal/budget", "internal/capture", "internal/toolerr", "sandbox", "tool", "vfs"},
	"doctor":          {"sandbox", "tool"},
	"cluster":         {"sandbox", "tool"}, "cluster/kubernetes": {"cluster", "internal/clip", "internal/retry", "sandbox", "tool"},

	// Evaluators.
	"llm":                      {"tool"},
	"evaltool":                 {"internal/budget", "tool", "vfs"},
	"evaltool/lisp":            {"internal/clip", "evaltool/lisp/driver", "internal/interp", "internal/lock", "internal/toolerr", "sandbox", "tool"},
	"evaltool/lisp/driver":     {"internal/interp"},
	"evaltool/internal/keeper": {"evaltool", "internal/interp", "internal/kept", "internal/toolerr", "sandbox"},
	"evaltool/python":          {"evaltool", "evaltool/internal/keeper", "evaltool/python/driver", "internal/interp", "internal/toolerr", "sandbox", "tool"},
	"evaltool/python/driver":   {"evaltool", "internal/interp"},
	"evaltool/bash":            {"evaltool", "evaltool/internal/keeper", "internal/interp", "sandbox"},
	"evaltool/javascript":      {"evaltool", "evaltool/internal/keeper", "evaltool/python/driver", "internal/interp", "sandbox", "tool"},
	"evaltool/wasm":            {"evaltool", "evaltool/python/driver", "internal/budget", "internal/kept", "internal/lock", "internal/sys", "tool", "vfs"},
	"rlm":                      {"internal/budget", "internal/oneline", "tool", "vfs", "internal/rundir", "llm"},

	// A session, and its views.
	"internal/changes": {"hostmount", "internal/beneath", "internal/budget", "internal/byproduct", "internal/gitignore", "internal/leftout", "internal/plumbing", "internal/retry", "internal/sys", "snapshot", "tool"},
	"internal/journal": {"internal/clip", "internal/redact", "tool/answer"},
	"internal/steps":   {"internal/byproduct", "internal/journal", "internal/lock", "snapshot", "tool"},
	"internal/box":     {"internal/clip", "internal/lock", "internal/redact", "internal/toolerr", "overlay", "sandbox", "tool", "vfs"},
	"internal/door":    {"egress", "egress/policy", "internal/box", "internal/lock", "sandbox"},
	"internal/inside":  {"internal/clip", "internal/toolerr", "sandbox", "tool"},
	"internal/hold":    {"internal/journal", "internal/relay", "internal/rundir", "sandbox", "tool/answer"},
	"profile":          {"internal/clip", "internal/lock", "tool"},
	"mcpserver":        {"httpguard", "internal/beat", "internal/mcptask", "tool", "vfs"},
	"": {
		"cluster", "digest", "egress", "egress/policy", "evaltool", "evaltool/bash", "evaltool/javascript", "evaltool/lisp", "evaltool/python", "evaltool/wasm", "hostmount", "images", "internal/settings", "internal/sharing", "internal/box", "internal/budget", "internal/builds", "internal/changes", "internal/clip",
		"internal/door", "internal/far", "internal/gate", "internal/hold", "internal/inside", "internal/journal", "internal/lock", "internal/packing", "internal/podbook", "internal/pool", "internal/scratch", "internal/steps", "internal/templates", "internal/toolerr", "internal/undo", "overlay", "podman",
		"profile", "rlm", "sandbox", "shelltool", "snapshot", "tool", "vfs",
	},
	"metrics": {"", "profile", "httpguard", "internal/exposition"}, "metrics/collector": {"metrics", "internal/exposition"},

	// The surface for clients of E2B.
	"serve/e2b/internal/signature": {"httpguard"},
	"serve/e2b":                    {"serve/e2b/internal/signature", "egress/policy", "httpguard", "internal/apikeys", "internal/builds", "internal/far", "internal/registry", "internal/templates", "tool"},
	"serve":                        {"", "httpguard", "cluster", "internal/apikeys", "internal/audit", "internal/exposition", "internal/far", "internal/podbook", "internal/registry", "internal/undo", "mcpserver", "metrics", "sandbox", "serve/e2b", "serve/e2b/codeinterp", "serve/e2b/envd", "tool"},

	// The page for a browser.
	"page": {"", "evaltool", "hostmount", "httpguard", "internal/beat", "internal/ports", "overlay", "sandbox", "tool", "vfs"},

	// Surfaces for clients of other services.
	"serve/e2b/envd":       {"", "httpguard", "sandbox", "serve/e2b/internal/signature", "tool"},
	"serve/e2b/codeinterp": {"evaltool", "httpguard", "internal/beat", "tool"},

	// Programs of ours. Tests may import everything.
	"internal/stateroot":              {},
	"cmd/wisbox/internal/streams":     {"tool/answer"},
	"cmd/wisbox/internal/engine":      {"internal/rundir", "sandbox", "tool/answer"},
	"cmd/wisbox/internal/sessions":    {"cmd/wisbox/internal/streams", "overlay"},
	"cmd/wisbox/internal/engine/pack": {"cmd/wisbox/internal/engine"},
	"cmd/wisbox/front":                {"cmd/wisbox/internal/engine", "cmd/wisbox/internal/sessions", "cmd/wisbox/internal/streams", "internal/hold", "internal/stateroot", "overlay", "sandbox", "tool/answer"},
	"cmd/wisbox": {"cmd/wisbox/internal/engine", "cmd/wisbox/internal/sessions", "cmd/wisbox/internal/streams", "cluster", "egress", "egress/policy", "httpguard",
		"", "doctor", "evaltool", "evaltool/wasm", "hostmount", "images", "internal/beside", "internal/capture", "internal/clip", "internal/config", "internal/devcontainer", "internal/door", "internal/far", "internal/holes", "internal/leftout", "internal/plumbing", "internal/ports", "internal/retry", "internal/rundir", "internal/scratch", "internal/sshd", "internal/sys", "internal/timing", "internal/toolerr",
		"mcpserver", "metrics", "overlay", "page", "podman", "profile", "rlm", "sandbox", "serve", "tool", "vfs", "llm", "digest",
	},
	"bench":         {"overlay", "cluster", "cluster/kubernetes", "egress", "egress/policy", "evaltool", "httpguard", "", "hostmount", "images", "internal/hosttest", "internal/timing", "mcpserver", "podman", "rlm", "sandbox", "snapshot/snapshottest"},
	"scripts/house": {}, "scripts/testrun": {}, "images/mkbase": {"images"},
	"examples/demo":      {},
	"examples/embed":     {"", "sandbox"},
	"examples/agentloop": {"", "hostmount"}, "examples/mcpclient": {}, "examples/preview": {"", "sandbox"}, "examples/subagents": {"", "sandbox"},
	"integration":     {},
	"integration/mcp": {}, "integration/cluster": {}, "integration/gateway": {"internal/hosttest"}, "integration/pods": {"", "hostmount", "internal/conformance", "internal/hosttest", "sandbox", "tool"}, "integration/envd": {}, "integration/serve": {}, "integration/examples": {}, "integration/page": {},
}

type goPackage struct {
	ImportPath, Dir           string
	GoFiles, Imports, Deps    []string
	TestImports, XTestImports []string
}

func TestLayers(t *testing.T) {
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		allowed, known := layers[name]
		assert.True(t, known, "package %q has no place in the layers", name)
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, module) && short(imp) != "internal/patience" { // whoever waits asks it how long
				assert.Contains(t, allowed, short(imp), "%q must not import it", name)
			}
		}
	}
}

// TestEveryPackageSaysOnceWhatItIsFor requires one package comment, in one file.
func TestEveryPackageSaysOnceWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		var said []string
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			require.NoError(t, err)
			if f.Doc != nil {
				said = append(said, file)
			}
		}
		if len(p.GoFiles) > 0 { // a directory of tests alone has its comment in one of them
			assert.Len(t, said, 1, "%q", short(p.ImportPath))
		}
	}
}

func TestOnlyPodmanLinksTheBindings(t *testing.T) {
	users := []string{"podman", "", "cmd/wisbox", "metrics", "metrics/collector", "page", "serve", "bench", "serve/e2b/envd"}
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if slices.Contains(users, name) || strings.HasPrefix(name, "podman/") || strings.HasPrefix(name, "integration") || strings.HasPrefix(name, "examples") {
			continue
		}
		for _, dep := range p.Deps {
			assert.False(t, strings.HasPrefix(dep, "github.com/containers/podman/"), "%q links %s", name, dep)
		}
	}
}

// TestOnlyClusterSpeaksToKubernetes: only one package imports its client, and no package links the
// parts that register all groups of the API, which take long to compile.
func TestOnlyClusterSpeaksToKubernetes(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			foreign := strings.HasPrefix(path, "k8s.io/") || strings.HasPrefix(path, "sigs.k8s.io/")
			assert.False(t, foreign && short(p.ImportPath) != "cluster/kubernetes", "%s imports %s", p.ImportPath, path)
		}
		here := slices.Contains([]string{"cmd/wisbox", "examples/embed"}, short(p.ImportPath)) // programs for this machine alone
		for _, dep := range p.Deps {
			assert.False(t, here && strings.Contains(dep, "k8s.io/"), "%s links %s", p.ImportPath, dep)
			assert.False(t, strings.HasPrefix(dep, "k8s.io/client-go/kubernetes") || strings.HasPrefix(dep, "k8s.io/api/apps/"), "%s links %s", p.ImportPath, dep)
		}
	}
}

// TestTheFrontLinksLittle: a command of it takes as long as it takes to start. Each package here was measured.
func TestTheFrontLinksLittle(t *testing.T) {
	may := []string{
		"cmd/wisbox/front", "cmd/wisbox/internal/engine", "cmd/wisbox/internal/sessions", "cmd/wisbox/internal/streams", "internal/audit", "internal/beneath", "internal/clip", "internal/hold", "internal/journal", "internal/lock", "internal/patience", "internal/quota", "internal/redact", "internal/relay", "internal/retry", "internal/rundir",
		"internal/stateroot", "internal/sys", "overlay", "sandbox", "tool/answer", "github.com/oklog/ulid/v2", "golang.org/x/sync/semaphore", "github.com/docker/go-units", "github.com/gofrs/flock", "golang.org/x/sys/unix", "golang.org/x/term",
	}
	for _, p := range packages(t) {
		if short(p.ImportPath) != "cmd/wisbox/front" {
			continue
		}
		assert.Less(t, len(p.Deps), 160)
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			assert.True(t, !strings.Contains(first, ".") || strings.Contains(dep, "/internal/sys/internal/") || slices.Contains(may, short(dep)), "it links %s", dep)
			assert.NotContains(t, []string{"net/http", "crypto/tls", "text/template"}, dep)
		}
	}
}

// TestPatternsAreCompiledWhenTheyAreUsed: each start of the command would compile those of package variables.
func TestPatternsAreCompiledWhenTheyAreUsed(t *testing.T) {
	atStart := regexp.MustCompile(`(?m)^(?:var|\t)\s*\w+\s+= regexp\.MustCompile`)
	for _, p := range packages(t) {
		if name := short(p.ImportPath); strings.HasPrefix(name, "scripts/") || name == "internal/conformance" || strings.HasSuffix(name, "test") {
			continue // not part of the command
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			require.NoError(t, err)
			assert.NotRegexp(t, atStart, string(text), "%s: use sync.OnceValue", filepath.Join(p.Dir, file))
		}
	}
}

func TestPropertiesHave200Examples(t *testing.T) {
	for _, p := range packages(t) {
		of := slices.Concat(p.TestImports, p.XTestImports)
		if slices.Contains(of, "pgregory.net/rapid") {
			assert.Contains(t, of, module+"/internal/properties", "%s: import it for its effect", p.ImportPath)
		}
	}
}

// TestABuildThatCanNotBeSaysWhatToDo: it fails before it compiles anything.
func TestABuildThatCanNotBeSaysWhatToDo(t *testing.T) {
	for says, env := range map[string]string{
		"see_readme_for_build_tags": "GOFLAGS=", "needs_linux_or_macos_see_docs_install": "GOOS=freebsd",
	} {
		cmd := exec.Command("go", "build", "-o", os.DevNull, "./examples/embed")
		cmd.Env = append(os.Environ(), env)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(out), says+": build constraints exclude all Go files")
		lines := slices.DeleteFunc(slices.Collect(strings.Lines(string(out))), func(line string) bool {
			return strings.HasPrefix(line, "go: downloading ") // such a build asks for more modules, once
		})
		assert.LessOrEqual(t, len(lines), 10, "%s", out)
	}
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps,TestImports,XTestImports", "./...").Output()
	require.NoError(t, err)
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }
