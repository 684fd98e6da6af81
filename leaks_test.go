package wisbox_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withoutLeakTest are packages that start goroutines but don't check for leaks, with the reason.
var withoutLeakTest = map[string]string{
	"agent/inside":         "a program; the tests of package agent run it",
	"agent/inside/kernel":  "likewise",
	"agent/inside/monitor": "likewise",
	"bench":                "a program without tests",
	"examples/subagents":   "likewise",
	"images":               "its goroutines end with a program that they start",
	"podman/podmantest":    "a helper; the tests that use it look",
}

// TestPackagesThatStartGoroutinesLookForLeaks requires goleak in their tests.
func TestPackagesThatStartGoroutinesLookForLeaks(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		starts := startsGoroutines(t, p)
		if !starts {
			assert.Empty(t, withoutLeakTest[name], "%q is on the list and starts no goroutine", name)
			continue
		}
		found++
		if withoutLeakTest[name] == "" {
			assert.True(t, looksForLeaks(t, p.Dir), "%q starts goroutines; its TestMain must be goleak.VerifyTestMain", name)
		}
	}
	assert.Greater(t, found, 15)
}

// startsGoroutines reports whether a package has a go statement, or calls a method Go.
func startsGoroutines(t *testing.T, p goPackage) (found bool) {
	t.Helper()
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = true
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
					found = true
				}
			}
			return !found
		})
	}
	return found
}

// looksForLeaks reports whether a test of a directory uses goleak.
func looksForLeaks(t *testing.T, dir string) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	return slices.ContainsFunc(paths, func(path string) bool {
		f, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)
		return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"go.uber.org/goleak"` })
	})
}
