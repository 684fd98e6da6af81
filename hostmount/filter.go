package hostmount

import (
	"strconv"

	"github.com/wisbox/wisbox/internal/glob"
	"github.com/wisbox/wisbox/tool"
)

// filter is a mount's globs, compiled.
type filter struct{ include, exclude []*glob.Pattern }

func (m Mount) filter(at string) (f filter, err error) {
	if f.include, err = compile(m.Include, at+".include"); err != nil {
		return f, err
	}
	f.exclude, err = compile(m.Exclude, at+".exclude")
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

// refuses says why a path of the source is not copied; "" where it is. Exclude
// beats include, and directories need no include.
func (f filter) refuses(rel string, dir bool) Reason {
	switch {
	case matchAny(f.exclude, rel):
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
