package retry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// passing are the errors after which a call may be repeated.
var passing = map[string]bool{
	"EAGAIN": true, "EWOULDBLOCK": true, "EINTR": true, "EBUSY": true, "ESTALE": true,
	"EXDEV": true, "ENOTEMPTY": true, "ETXTBSY": true, "EINPROGRESS": true, "EALREADY": true,
}

// waits are calls that wait for a time.
var waits = map[string]bool{"Sleep": true, "After": true, "NewTimer": true, "NewTicker": true, "Tick": true, "Nanosleep": true, "Poll": true}

// TestEveryRetryHasACountAndAContext checks each loop of the repository that compares an error
// after which a call may be repeated, itself or in a function of the same package that it calls.
// The loop's head must bound it, and if it waits, it must use a context.
func TestEveryRetryHasACountAndAContext(t *testing.T) {
	packages := map[string][]string{}
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root && d.Name() != ".."):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], path)
		}
		return nil
	}))
	require.Greater(t, len(packages), 30, "the repository's packages are found")
	fset := token.NewFileSet()
	for _, paths := range packages {
		var files []*ast.File
		for _, path := range paths {
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		for _, found := range unbounded(files) {
			t.Errorf("%s: %s", fset.Position(found.at), found.why)
		}
	}
}

// TestTheLintSeesUnboundedRetries runs the check over retries of many shapes: the name of each
// function in the sample says whether it must be refused.
func TestTheLintSeesUnboundedRetries(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, filepath.Join("testdata", "retries.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	refused := map[string]bool{}
	for _, found := range unbounded([]*ast.File{file}) {
		refused[found.in] = true
	}
	bad, good := 0, 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		switch {
		case !ok:
		case strings.HasPrefix(f.Name.Name, "bad"):
			bad++
			assert.True(t, refused[f.Name.Name], "%s passes", f.Name.Name)
		case strings.HasPrefix(f.Name.Name, "good"):
			good++
			assert.False(t, refused[f.Name.Name], "%s is refused", f.Name.Name)
		}
	}
	assert.Greater(t, bad, 8)
	assert.Greater(t, good, 5)
}

type finding struct {
	in  string // function
	at  token.Pos
	why string
}

// unbounded returns the retries of one package without a bound.
func unbounded(files []*ast.File) (found []finding) {
	asks := asking(files)
	for _, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if why := loopFault(n, asks); why != "" {
					found = append(found, finding{f.Name.Name, n.Pos(), why})
				}
				return true
			})
			if recursive(f) {
				found = append(found, finding{f.Name.Name, f.Pos(), "calls itself again for an error that may stay; use a counted loop"})
			}
		}
	}
	return found
}

// asking returns the package's functions that compare such an error and return a bool.
func asking(files []*ast.File) map[string]bool {
	asks := map[string]bool{}
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && decides(f.Type.Results) && compares(f.Body, nil) {
				asks[f.Name.Name] = true
			}
		}
	}
	return asks
}

func decides(results *ast.FieldList) bool {
	return results != nil && slices.ContainsFunc(results.List, func(f *ast.Field) bool { return isIdent(f.Type, "bool") })
}

func loopFault(n ast.Node, asks map[string]bool) string {
	switch loop := n.(type) {
	case *ast.ForStmt:
		switch {
		case !compares(loop.Body, asks) && (loop.Cond == nil || !compares(loop.Cond, asks)):
		case !counted(loop):
			return "this loop may go on for as long as an error stays; bound it by a count in its head, or use package retry"
		case waiting(loop.Body) && !knowsContext(loop):
			return "this retry waits without a context; use package retry"
		}
	case *ast.RangeStmt:
		switch {
		case !compares(loop.Body, asks):
		case endless(loop.X):
			return "this loop may go on for as long as an error stays; bound it by a count in its head, or use package retry"
		case waiting(loop.Body) && !knowsContext(loop):
			return "this retry waits without a context; use package retry"
		}
	case *ast.LabeledStmt:
		if jumpsBack(loop) && compares(loop.Stmt, asks) {
			return "this goto retries without a count; use package retry"
		}
	}
	return ""
}

// compares reports whether n names such an error, or a function that compares one. A nested
// function or loop is also checked on its own.
func compares(n ast.Node, asks map[string]bool) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.SelectorExpr:
			yes = yes || passing[x.Sel.Name]
		case *ast.CallExpr:
			yes = yes || asks[calledName(x)]
		}
		return !yes
	})
	return yes
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && slices.Contains([]string{"retry", "unix", "syscall", "os"}, x.Name) && !waits[f.Sel.Name] {
			return "" // not a function of the package
		}
		return f.Sel.Name
	}
	return ""
}

// counted reports whether the head compares a counter that it changes and that the body leaves
// unchanged.
func counted(loop *ast.ForStmt) bool {
	step, ok := loop.Post.(*ast.IncDecStmt)
	if !ok {
		return false
	}
	counter, ok := step.X.(*ast.Ident)
	if !ok {
		return false
	}
	bound := false
	for _, c := range conjuncts(loop.Cond) {
		cmp, ok := c.(*ast.BinaryExpr)
		bound = bound || ok && (isIdent(cmp.X, counter.Name) || isIdent(cmp.Y, counter.Name)) &&
			(cmp.Op == token.LSS || cmp.Op == token.LEQ || cmp.Op == token.GTR || cmp.Op == token.GEQ || cmp.Op == token.NEQ)
	}
	return bound && !writes(loop.Body, counter.Name)
}

func conjuncts(e ast.Expr) []ast.Expr {
	if and, ok := e.(*ast.BinaryExpr); ok && and.Op == token.LAND {
		return append(conjuncts(and.X), conjuncts(and.Y)...)
	}
	return []ast.Expr{e}
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func writes(body ast.Node, name string) (yes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.AssignStmt:
			for _, l := range s.Lhs {
				yes = yes || isIdent(l, name) && s.Tok != token.DEFINE
			}
		case *ast.IncDecStmt:
			yes = yes || isIdent(s.X, name)
		}
		return !yes
	})
	return yes
}

// endless reports whether x is a ticker's channel.
func endless(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return x.Sel.Name == "C"
	case *ast.CallExpr:
		return calledName(x) == "Tick"
	}
	return false
}

func waiting(body ast.Node) (yes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.CallExpr:
			yes = yes || waits[calledName(x)]
		case *ast.UnaryExpr:
			yes = yes || x.Op == token.ARROW
		}
		return !yes
	})
	return yes
}

func knowsContext(loop ast.Node) (yes bool) {
	ast.Inspect(loop, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			yes = yes || id.Name == "ctx" || strings.HasSuffix(id.Name, "Ctx")
		}
		return !yes
	})
	return yes
}

// jumpsBack reports whether the labelled statement, or something in it, jumps to its own label.
func jumpsBack(l *ast.LabeledStmt) (yes bool) {
	ast.Inspect(l.Stmt, func(n ast.Node) bool {
		if b, ok := n.(*ast.BranchStmt); ok {
			yes = yes || b.Tok == token.GOTO && b.Label.Name == l.Label.Name
		}
		return !yes
	})
	return yes
}

// recursive reports whether f calls itself after a comparison with such an error.
func recursive(f *ast.FuncDecl) (yes bool) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.IfStmt:
			yes = yes || compares(s.Cond, nil) && calls(s.Body, f.Name.Name)
		case *ast.CaseClause:
			for _, c := range s.List {
				yes = yes || compares(c, nil) && calls(&ast.BlockStmt{List: s.Body}, f.Name.Name)
			}
		}
		return !yes
	})
	return yes
}

func calls(body ast.Node, name string) (yes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			yes = yes || calledName(c) == name
		}
		return !yes
	})
	return yes
}
