package patience

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheSetting(t *testing.T) {
	for text, want := range map[string]float64{"": 1, "1": 1, "2.5": 2.5, "15": 15, "100": 100} {
		got, err := read(text)
		assert.NoError(t, err, text)
		assert.InDelta(t, want, got, 0, text)
	}
	for _, text := range []string{"0", "0.5", "-3", "101", "NaN", "Inf", "15x", "fast"} {
		got, err := read(text)
		assert.ErrorContains(t, err, Variable, text)
		assert.ErrorContains(t, err, "from 1 to 100", text)
		assert.InDelta(t, 1.0, got, 0, "%s: nothing is stretched", text)
	}
	assert.Equal(t, time.Duration(factor*3*float64(time.Second)), For(3*time.Second))
}

// bounds are the calls that end a wait, and which of their arguments says when.
var bounds = map[string]int{"WithTimeout": 1, "WithTimeoutCause": 1, "DialTimeout": 2, "SetDeadline": 0, "SetReadDeadline": 0, "SetWriteDeadline": 0}

// elsewhere are the folders whose programs aren't the product.
var elsewhere = []string{"bench", "examples", "integration", "scripts", "testdata", "internal/conformance", "internal/hosttest", "sandbox/sandboxtest", "internal/syscalltest", ".cache", "dist"}

// asItIs are the times that the setting must not touch.
var asItIs = map[string]string{
	"shelltool/processes.go startLook":                  "a look at whether a program ends at once",
	"profile/bash.go bashTimeout":                       "a limit of the tool that its description names",
	"vfs/vfs.go shortenWait":                            "a look",
	"cluster/kubernetes/notes.go a time without a name": "the API server ends the watch, and what it may be late by is an option",
	"serve/e2b/control.go createTime":                   "clients give up after a minute",
	"metrics/serve.go answerTimeout":                    "a slow client doesn't hold the server",
	"cmd/wisbox/agent_report.go finishGrace":            "long enough for all",
	"evaltool/wasm/install.go installTime":              "a download",
	"page/terminal.go writeTime":                        "a slow client doesn't hold the server",
}

// TestEveryWaitIsStretched finds calls that end an internal wait after a constant time. A time that comes from a
// parameter or from a variable was decided elsewhere: there it is a constant again, or somebody's setting.
func TestEveryWaitIsStretched(t *testing.T) {
	packages := map[string][]string{}
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(elsewhere, rel) || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			packages[filepath.Dir(rel)] = append(packages[filepath.Dir(rel)], rel)
		}
		return nil
	}))
	require.Greater(t, len(packages), 50, "the repository's packages are found")
	used := map[string]bool{}
	for _, paths := range packages {
		files := map[string]*ast.File{}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files[path] = file
		}
		for _, found := range fixed(files) {
			used[found] = true
			assert.Contains(t, asItIs, found, "a wait of a fixed time: declare it as patience.For(…), or list it in asItIs with the reason")
		}
	}
	for name := range asItIs {
		assert.True(t, used[name], "%s is listed, but no wait has that name", name)
	}
}

// TestTheWalkSeesFixedWaits: each function of the sample whose name begins with bad is found, no other.
func TestTheWalkSeesFixedWaits(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("testdata", "waits.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var want []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "bad") {
			want = append(want, f.Name.Name)
			found := fixed(map[string]*ast.File{"": {Name: file.Name, Decls: slices.Concat(general(file), []ast.Decl{f})}})
			assert.Len(t, found, 1, f.Name.Name)
		} else if ok {
			assert.Empty(t, fixed(map[string]*ast.File{"": {Name: file.Name, Decls: slices.Concat(general(file), []ast.Decl{f})}}), f.Name.Name)
		}
	}
	assert.GreaterOrEqual(t, len(want), 5)
}

func general(file *ast.File) (decls []ast.Decl) {
	for _, d := range file.Decls {
		if _, ok := d.(*ast.GenDecl); ok {
			decls = append(decls, d)
		}
	}
	return decls
}

// fixed returns "file what" for each wait of a package that ends after a constant time.
func fixed(files map[string]*ast.File) (found []string) {
	constants := map[string]bool{}
	for _, file := range files {
		for _, d := range general(file) {
			for _, spec := range d.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for i, name := range v.Names {
						if i < len(v.Values) && constant(v.Values[i], constants) {
							constants[name.Name] = true
						}
					}
				}
			}
		}
	}
	for path, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			at, ends := bounds[callee(call)]
			if ends && at < len(call.Args) {
				if what, is := fixedTime(call.Args[at], constants); is {
					found = append(found, strings.TrimSpace(path+" "+what))
				}
			}
			return true
		})
	}
	return found
}

func callee(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// fixedTime looks through time.Now().Add(…).
func fixedTime(e ast.Expr, constants map[string]bool) (string, bool) {
	if call, ok := e.(*ast.CallExpr); ok && callee(call) == "Add" && len(call.Args) == 1 {
		e = call.Args[0]
	}
	if !constant(e, constants) {
		return "", false
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name, true
	}
	return "a time without a name", true
}

// constant reports whether an expression is a time that is written in the source, by itself or as a name of the package.
func constant(e ast.Expr, constants map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return constants[e.Name]
	case *ast.ParenExpr:
		return constant(e.X, constants)
	case *ast.BinaryExpr:
		return constant(e.X, constants) || constant(e.Y, constants)
	case *ast.SelectorExpr:
		of, ok := e.X.(*ast.Ident)
		return ok && of.Name == "time" && slices.Contains([]string{"Millisecond", "Second", "Minute", "Hour"}, e.Sel.Name)
	}
	return false
}
