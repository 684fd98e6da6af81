// Package byproduct lists the paths that programs write as a by-product of any task: caches, and the
// index that git status refreshes. Changes only to these paths don't count as changes.
package byproduct

import (
	"slices"
	"strings"
)

// dirs are directories that are by-products with their whole content, wherever they are.
var dirs = []string{"__pycache__", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"}

// Is reports whether a slash-separated path is a by-product, or is inside one.
func Is(path string) bool {
	names := strings.Split(path, "/")
	last := names[len(names)-1]
	if n := len(names); n > 1 && names[n-2] == ".git" && (last == "index" || last == "index.lock") {
		return true
	}
	return strings.HasSuffix(last, ".pyc") || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(dirs, name) })
}

// List returns the by-products as a person would write them.
func List() []string {
	list := []string{".git/index", "*.pyc"}
	for _, dir := range dirs {
		list = append(list, dir+"/")
	}
	return list
}
