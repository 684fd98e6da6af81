// Command house prints how large the product is, as figures that should fall: `make house`.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// beside are the parts beside the core: they could be programs of their own.
var beside = []string{"bench", "digest", "examples", "internal/conformance", "internal/hosttest", "llm", "page", "podman/podmantest", "profile", "rlm", "sandbox/sandboxtest", "serve"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run() error {
	files, err := output("git", "ls-files", "*.go")
	if err != nil {
		return err
	}
	packages := map[string][]string{}
	var all, core, root, rootTests, rootLines int
	for _, file := range files {
		dir := filepath.Dir(file)
		if strings.HasSuffix(file, "_test.go") {
			if dir == "." {
				rootTests++
			}
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		n := bytes.Count(raw, []byte("\n"))
		all += n
		if !slices.ContainsFunc(beside, func(part string) bool { return strings.HasPrefix(file, part+"/") }) {
			core += n
		}
		if dir == "." {
			root, rootLines = root+1, rootLines+n
		}
		packages[dir] = append(packages[dir], file)
	}
	once, functions, err := calledOnce(packages)
	if err != nil {
		return err
	}
	deps, err := output("go", "list", "-deps", "./examples/embed")
	if err != nil {
		return err
	}
	ours, kubernetes := 0, 0
	for _, dep := range deps {
		if strings.HasPrefix(dep, "github.com/wisbox/wisbox") {
			ours++
		}
		if strings.HasPrefix(dep, "k8s.io/") {
			kubernetes++
		}
	}
	fmt.Printf("%-62s %d\n", "lines of Go without tests", all)
	fmt.Printf("%-62s %d\n", "of them in the core", core)
	fmt.Printf("%-62s %d, %d, %d\n", "root package: files, lines, files of tests", root, rootLines, rootTests)
	fmt.Printf("%-62s %d\n", "packages", len(packages))
	fmt.Printf("%-62s %d, %d\n", "packages that an embedder links: ours, of Kubernetes", ours, kubernetes)
	fmt.Printf("%-62s %d of %d\n", "unexported functions that their package names once", once, functions)
	return nil
}

// calledOnce counts the unexported functions and methods whose name has one use in its package, and all of them.
func calledOnce(packages map[string][]string) (once, functions int, err error) {
	for _, files := range packages {
		declared, used := map[string]int{}, map[string]int{}
		for _, file := range files {
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return 0, 0, err
			}
			for _, d := range tree.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && !f.Name.IsExported() && f.Name.Name != "main" && f.Name.Name != "init" {
					declared[f.Name.Name]++
				}
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					used[id.Name]++
				}
				return true
			})
		}
		for name, n := range declared {
			functions += n
			if n == 1 && used[name] == 2 { // the declaration is one
				once++
			}
		}
	}
	return once, functions, nil
}

func output(name string, args ...string) ([]string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.Fields(string(out)), err
}
