// Package glob matches path patterns for the tools glob and grep and for host mounts. It matches
// names; it walks no directories.
//
// "*" matches within a segment. "**" as a whole segment matches any number of segments, including
// none. "?" matches one character, "[a-z]" and "[!a]" are classes, "{a,b}" are alternatives, and
// "\" escapes the next character. A pattern without "/" matches the base name at any depth.
package glob

import (
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/wisbox/wisbox/internal/pathname"
	"github.com/wisbox/wisbox/tool"
)

const (
	// MaxLength bounds a pattern, in characters.
	MaxLength = 512
	// MaxAlternatives bounds the number of patterns that the braces of a pattern stand for. They
	// are never expanded, but each may be tried.
	MaxAlternatives = 1_024
)

// Pattern is a compiled pattern. It may be used from many goroutines at once.
type Pattern struct {
	text   string
	base   bool   // matches only the last element
	suffix string // with base: the pattern is "*" and this suffix, the most frequent form
	all    bool   // matches everything
	prefix string // leading elements without special characters
	depth  int    // elements of a path that can match; 0 for any number
}

// Compile compiles a pattern in ASCII. Its error is a *tool.Error of kind invalid, to which the
// caller adds the field.
func Compile(pattern string) (*Pattern, error) {
	if !pathname.ASCII(pattern) {
		return nil, tool.Errorf(tool.Invalid, "the pattern has a character that is not printable ASCII; use a wildcard for it")
	}
	return CompileText(pattern)
}

// CompileText is like [Compile] for a pattern in Unicode with the characters that [pathname.Text]
// accepts.
func CompileText(pattern string) (*Pattern, error) {
	if err := validate(pattern); err != nil {
		return nil, err
	}
	text := pattern
	for strings.HasPrefix(text, "**/") && text != "**/" {
		text = text[len("**/"):]
	}
	p := &Pattern{text: pattern, base: !strings.Contains(text, "/")}
	if p.base {
		p.text = text
		p.all = text == "*" || text == "**"
		p.suffix = suffixOf(text)
		return p, nil
	}
	p.prefix, p.depth = shape(pattern)
	return p, nil
}

func shape(pattern string) (prefix string, depth int) {
	elements := strings.Split(pattern, "/")
	if !strings.Contains(pattern, "**") && !strings.ContainsAny(pattern, `{\`) {
		depth = len(elements)
	}
	var fixed []string
	for _, e := range elements[:len(elements)-1] {
		if strings.ContainsAny(e, `*?[]{}\`) {
			break
		}
		fixed = append(fixed, e)
	}
	return strings.Join(fixed, "/"), depth
}

// Descend reports whether something below the directory dir may match. If not, a walk can skip the
// directory.
func (p *Pattern) Descend(dir string) bool {
	if p.base {
		return true
	}
	if p.depth > 0 && strings.Count(dir, "/")+1 >= p.depth {
		return false
	}
	return under(dir, p.prefix) || under(p.prefix, dir)
}

func under(path, dir string) bool {
	return dir == "" || path == dir || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

func suffixOf(text string) string {
	if rest, ok := strings.CutPrefix(text, "*"); ok && !strings.ContainsAny(rest, `*?[]{}\`) {
		return rest
	}
	return ""
}

// BaseOnly reports whether the pattern depends only on the last element: then Match of a bare name
// holds for every path that ends in it.
func (p *Pattern) BaseOnly() bool { return p.base }

// Match reports whether path matches; it is slash-separated and relative to the base of the walk.
// The time depends only on the path's length.
func (p *Pattern) Match(path string) bool {
	if p.base {
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			path = path[i+1:]
		}
	}
	switch {
	case p.all:
		return path != ""
	case p.suffix != "":
		return strings.HasSuffix(path, p.suffix)
	}
	return doublestar.MatchUnvalidated(p.text, path)
}

func validate(pattern string) *tool.Error {
	switch {
	case pattern == "":
		return tool.Errorf(tool.Invalid, "the pattern is empty; ** matches everything")
	case utf8.RuneCountInString(pattern) > MaxLength:
		return tool.Errorf(tool.Invalid, "the pattern has %d characters; the maximum is %d", utf8.RuneCountInString(pattern), MaxLength)
	case !pathname.Text(pattern):
		return tool.Errorf(tool.Invalid, "the pattern has a control character, an invisible one, or bytes that are not UTF-8; use a wildcard for it")
	case strings.HasPrefix(pattern, "/"):
		return tool.Errorf(tool.Invalid, "the pattern starts with /; make it relative to the searched directory")
	case climbs(pattern):
		return tool.Errorf(tool.Invalid, "the pattern has a . or .. segment; patterns only match below the searched directory")
	case !doublestar.ValidatePattern(pattern):
		return tool.Errorf(tool.Invalid, "the pattern is malformed: a [, a { or a \\ is not closed")
	case alternatives(pattern) > MaxAlternatives:
		return tool.Errorf(tool.Invalid, "the pattern's braces mean more than %d patterns; use fewer", MaxAlternatives)
	}
	return nil
}

func climbs(pattern string) bool {
	elements := strings.FieldsFunc(pattern, func(r rune) bool { return r == '/' || r == '{' || r == '}' || r == ',' })
	for _, e := range elements {
		if e == ".." || e == "." {
			return true
		}
	}
	return false
}

// alternatives returns an upper bound of the number of patterns that the braces stand for.
func alternatives(pattern string) int {
	total, open := 1, []int{}
	for i := 0; i < len(pattern) && total <= MaxAlternatives; i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			open = append(open, 1)
		case ',':
			if len(open) > 0 {
				open[len(open)-1]++
			}
		case '}':
			if len(open) > 0 {
				total *= open[len(open)-1]
				open = open[:len(open)-1]
			}
		}
	}
	return total
}
