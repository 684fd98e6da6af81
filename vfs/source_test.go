package vfs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// byPath are the calls that take a path and could be led out of a workspace. Only journal.go works
// on a path of its own.
var byPath = map[string][]string{
	"os": {
		"Open", "OpenFile", "Create", "CreateTemp", "ReadFile", "WriteFile", "ReadDir", "Remove", "RemoveAll", "Rename", "Mkdir", "MkdirAll", "Stat",
		"Lstat", "Readlink", "Symlink", "Link", "Chmod", "Chown", "Lchown", "Chtimes", "Truncate", "DirFS", "CopyFS", "OpenRoot", "OpenInRoot",
	},
	"filepath": {"Walk", "WalkDir", "Glob", "EvalSymlinks"},
	"unix":     {"Open", "Openat", "Stat", "Lstat", "Mkdir", "Unlink", "Rename", "Chmod", "Chown", "Link", "Symlink", "Readlink", "Truncate"},
	"ioutil":   {"ReadFile", "WriteFile", "ReadDir"},
}

func TestNoFileIsReachedByItsPath(t *testing.T) {
	for _, dir := range []string{".", "../internal/beneath"} {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") && f.Name() != "journal.go" {
				checkCalls(t, dir, f)
			}
		}
	}
}

func checkCalls(t *testing.T, dir string, f fs.DirEntry) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, dir+"/"+f.Name(), nil, 0)
	require.NoError(t, err)
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := call.X.(*ast.Ident)
		if !ok || !slices.Contains(byPath[pkg.Name], call.Sel.Name) || dir != "." && pkg.Name == "unix" && call.Sel.Name == "Openat" {
			return true // beneath opens single names with Openat: that is what it is for
		}
		assert.Failf(t, "a call by path", "%s: %s.%s", set.Position(call.Pos()), pkg.Name, call.Sel.Name)
		return true
	})
}
