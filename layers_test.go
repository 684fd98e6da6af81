package wisbox_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/wisbox/wisbox"

// layers says what each package may import of ours; what stands in internal/ may
// be used by all but the leaves. A package that isn't here has no place yet.
var layers = map[string][]string{
	"tool":    {},
	"sandbox": {},

	"internal/*": {"tool", "sandbox"},

	"overlay":         {"tool"},
	"hostmount":       {"tool"},
	"vfs":             {"tool"},
	"agent":           {"sandbox"},
	"podman":          {"sandbox", "agent"},
	"images":          {"evaltool/lisp/driver", "sandbox", "tool"},
	"shelltool":       {"sandbox", "tool", "vfs"},
	"evaltool":        {"tool", "vfs"},
	"evaltool/python": {"evaltool", "evaltool/python/driver", "sandbox", "tool", "vfs"},
	"evaltool/wasm":   {"evaltool", "evaltool/python/driver", "tool", "vfs"},
	"evaltool/lisp":   {"evaltool/lisp/driver", "sandbox", "tool"},
	"rlm":             {"tool", "vfs"},
	"snapshot":        {"tool"},
	"digest":          {"tool"},
	"doctor":          {"sandbox", "tool"},
	"profile":         {"tool"},
	"mcpserver":       {"tool"},
	"metrics":         {"", "profile"},

	"evaltool/python/driver": {},
	"evaltool/lisp/driver":   {},
	"": {
		"tool", "sandbox", "overlay", "hostmount", "vfs", "podman", "images", "shelltool", "evaltool", "evaltool/python", "evaltool/wasm",
		"evaltool/lisp", "rlm", "snapshot", "digest", "profile",
	},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func TestLayers(t *testing.T) {
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if strings.HasPrefix(name, "cmd/") || name == "bench" || strings.HasPrefix(name, "examples") || strings.HasSuffix(name, "test") || strings.HasPrefix(name, "integration") || strings.Contains(name, "/internal/") {
			continue
		}
		allowed, known := layers[name]
		if strings.HasPrefix(name, "internal/") {
			allowed, known = layers["internal/*"], true
		}
		require.True(t, known, "package %q has no place in the layers", name)
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			dep := short(imp)
			if strings.HasPrefix(dep, "internal/") && name != "tool" && name != "sandbox" {
				continue
			}
			assert.True(t, slices.Contains(allowed, dep), "%q must not import %q", name, dep)
		}
	}
}

func TestOnlyPodmanLinksTheBindings(t *testing.T) {
	users := []string{"podman", "", "cmd/wisbox", "metrics", "bench"}
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

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
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
