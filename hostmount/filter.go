package hostmount

import (
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/wisbox/wisbox/internal/glob"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

// filter holds a mount's compiled globs.
type filter struct{ include, exclude []*glob.Pattern }

// folds is [sys.FoldsNames]. If a file is excluded under one spelling it is under each, or a session could reach it by
// another. Tests change it.
var folds = sys.FoldsNames

func fold(text string) string {
	if !folds {
		return text
	}
	return strings.ToLower(norm.NFC.String(text))
}

func (m Mount) filter(at string) (f filter, err error) {
	if f.include, err = compile(m.Include, at+".include"); err != nil {
		return f, err
	}
	if f.exclude, err = compile(m.Exclude, at+".exclude"); err != nil || !folds {
		return f, err
	}
	folded := make([]string, len(m.Exclude))
	for i, g := range m.Exclude {
		folded[i] = fold(g)
	}
	f.exclude, err = compile(folded, at+".exclude")
	return f, err
}

func compile(globs []string, at string) ([]*glob.Pattern, error) {
	var patterns []*glob.Pattern
	for i, g := range globs {
		p, err := glob.CompileText(g)
		if err != nil {
			return nil, tool.AsError(err).In(at + "[" + strconv.Itoa(i) + "]")
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// refuses returns the reason why a path of the source is not copied, "" if it is. Exclude overrides include, and
// directories need no include.
func (f filter) refuses(rel string, dir bool) Reason {
	switch {
	case matchAny(f.exclude, fold(rel)):
		return Excluded
	case !dir && len(f.include) > 0 && !matchAny(f.include, rel):
		return NotIncluded
	}
	return ""
}

func matchAny(patterns []*glob.Pattern, rel string) bool {
	for _, p := range patterns {
		if p.Match(rel) {
			return true
		}
	}
	return false
}
