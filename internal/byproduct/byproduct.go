// Package byproduct knows the paths that programs write by themselves, whatever they were
// asked to do: caches, and the index that git refreshes when it is only asked how
// things are. What changes there alone is no change that a person made.
package byproduct

import (
	"slices"
	"strings"
)

// dirs are directories that are by-products with all below them, wherever they lie.
var dirs = []string{"__pycache__", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"}

// Is reports whether a slash-separated path is a by-product, or lies in one.
func Is(path string) bool {
	names := strings.Split(path, "/")
	last := names[len(names)-1]
	if n := len(names); n > 1 && names[n-2] == ".git" && (last == "index" || last == "index.lock") {
		return true
	}
	return strings.HasSuffix(last, ".pyc") || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(dirs, name) })
}

// List has the by-products as a person would write them.
func List() []string {
	list := []string{".git/index", "*.pyc"}
	for _, dir := range dirs {
		list = append(list, dir+"/")
	}
	return list
}
