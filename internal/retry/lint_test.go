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

// passing are the errors that a call may be made again for.
var passing = map[string]bool{
	"EAGAIN": true, "EWOULDBLOCK": true, "EINTR": true, "EBUSY": true, "ESTALE": true,
	"EXDEV": true, "ENOTEMPTY": true, "ETXTBSY": true, "EINPROGRESS": true, "EALREADY": true,
}

// waits are calls by which a loop lets time pass.
var waits = map[string]bool{"Sleep": true, "After": true, "NewTimer": true, "NewTicker": true, "Tick": true, "Nanosleep": true, "Poll": true}

// TestEveryRetryHasACountAndAContext looks at each loop of the repository in which,
// or in a function of the same package that it calls, an error is compared that a
// call may be made again for. The loop's head must bound it, and where it waits it
// must know a context.
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

// TestTheLintSeesUnboundedRetries runs it over retries of many shapes: each function
// of the sample says by its name whether it is to be refused.
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

// unbounded finds the retries of one package that nothing bounds.
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

// asking are the package's functions that compare such an error and answer yes or no.
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

// compares says that such an error, or a function that asks for one, is named in n.
// A nested function or loop is looked at by itself as well.
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

// counted says that the head compares a counter that it moves and that the body
// leaves alone.
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

// endless is a range over a ticker's channel.
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

// jumpsBack says that the labelled statement, or what follows in it, goes to its
// own label.
func jumpsBack(l *ast.LabeledStmt) (yes bool) {
	ast.Inspect(l.Stmt, func(n ast.Node) bool {
		if b, ok := n.(*ast.BranchStmt); ok {
			yes = yes || b.Tok == token.GOTO && b.Label.Name == l.Label.Name
		}
		return !yes
	})
	return yes
}

// recursive says that f calls itself below a comparison with such an error.
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
