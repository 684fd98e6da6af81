package wisbox_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Constructors that need no Example of their own, and Examples that can't be run.
var (
	withoutExample = map[string]string{
		"agent.NewSockets":            "sandboxes have it as sandbox.Networker",
		"httpguard.NewToken":          "a part of httpguard's ExampleNew",
		"sandbox/sandboxtest.NewHost": "the examples of the packages above begin with it",
	}
	notRun = map[string]string{
		"cluster/kubernetes.New":  "it needs Kubernetes",
		"evaltool/javascript.New": "it needs Node.js",
		"llm.NewEndpoint":         "it needs a model",
		"mcpserver.New":           "it serves its own stdin",
		"metrics.New":             "it needs Podman",
		"metrics.NewHolders":      "it needs Podman",
		"podman.New":              "it needs Podman",
		"profile.Bind":            "it needs Podman, and serves its own stdin",
		"serve.New":               "it needs Podman",
	}
	// alsoConstructors are the first functions of packages without a New.
	alsoConstructors = []string{"doctor.Examine", "rlm.Run", "hostmount.Copy", "profile.Bind"}
)

// TestEveryPublicConstructorHasAnExampleThatRuns looks for functions New… and Open… of
// the packages that embedders import.
func TestEveryPublicConstructorHasAnExampleThatRuns(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if !public(name) {
			continue
		}
		examples := examplesOf(t, p.Dir)
		for _, constructor := range constructorsOf(t, p, name) {
			key := strings.TrimPrefix(name+"."+constructor, ".")
			seen[key] = true
			example := examples[constructor]
			if reason := withoutExample[key]; reason != "" {
				assert.Nil(t, example, "%s has an Example; take it off the list", key)
				continue
			}
			if assert.NotNil(t, example, "%s: there is no Example%s", key, constructor) {
				runs := example.Output != "" || example.EmptyOutput
				assert.Equal(t, notRun[key] == "", runs, "%s: its Example has no // Output, or it has and is on the list", key)
			}
		}
	}
	assert.Greater(t, len(seen), 25, "the constructors are found")
	for _, listed := range []map[string]string{withoutExample, notRun} {
		for key := range listed {
			assert.True(t, seen[key], "%s is not a constructor", key)
		}
	}
	for _, key := range alsoConstructors {
		assert.True(t, seen[key], "%s isn't there", key)
	}
}

// public reports whether a package is for other modules to import.
func public(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "internal", "cmd", "bench", "examples", "integration", "inside", "wire": // the last two are the agent's own
			return false
		}
	}
	return true
}

func constructorsOf(t *testing.T, p goPackage, pkg string) (names []string) {
	t.Helper()
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && !forTests(fn) && isConstructor(pkg, fn.Name.Name) {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

func isConstructor(pkg, name string) bool {
	return strings.HasPrefix(name, "New") || strings.HasPrefix(name, "Open") || slices.Contains(alsoConstructors, pkg+"."+name)
}

// forTests reports whether a function takes a test, which no Example has.
func forTests(fn *ast.FuncDecl) bool {
	for _, param := range fn.Type.Params.List {
		kind := param.Type
		if star, ok := kind.(*ast.StarExpr); ok {
			kind = star.X
		}
		if s, ok := kind.(*ast.SelectorExpr); ok {
			if from, ok := s.X.(*ast.Ident); ok && from.Name == "testing" {
				return true
			}
		}
	}
	return false
}

// examplesOf returns the Examples of a directory by what they show.
func examplesOf(t *testing.T, dir string) map[string]*doc.Example {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	found := map[string]*doc.Example{}
	for _, path := range paths {
		f, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, example := range doc.Examples(f) {
			of, _, _ := strings.Cut(example.Name, "_")
			found[of] = example
		}
	}
	return found
}
