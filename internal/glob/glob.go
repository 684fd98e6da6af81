// Package glob is the one matcher of path patterns: what the tools glob and
// grep, and host mounts, mean by a pattern. It matches names; it walks nothing.
//
// "*" stays in a segment, "**" as a whole segment spans segments including
// none, "?" is one character, "[a-z]" and "[!a]" are classes, "{a,b}" are
// alternatives, "\" takes the next character as it is. A pattern without "/"
// matches the base name at any depth.
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
	// MaxAlternatives bounds what the braces of a pattern expand to. They are
	// never expanded, but each may be tried.
	MaxAlternatives = 1_024
)

// Pattern is a compiled pattern, good for many goroutines at once.
type Pattern struct {
	text   string
	base   bool   // matches the last element alone
	suffix string // with base: "*" and this, the most frequent form
	all    bool   // matches everything
	prefix string // the leading elements that are no pattern
	depth  int    // elements of a path that can match; 0: any number
}

// Compile checks a pattern in ASCII. Its error is a *tool.Error of kind invalid; which
// field is at fault the caller adds.
func Compile(pattern string) (*Pattern, error) {
	if !pathname.ASCII(pattern) {
		return nil, tool.Errorf(tool.Invalid, "the pattern holds a character that is not printable ASCII")
	}
	return CompileText(pattern)
}

// CompileText is [Compile] for a pattern in Unicode: of what [pathname.Text] takes.
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

// Descend reports whether something below the directory dir may match; when not,
// a walk need not look there. It may be true where nothing is found.
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

// BaseOnly says that the pattern looks at nothing but the last element: Match of
// a bare name answers for every path that ends in it.
func (p *Pattern) BaseOnly() bool { return p.base }

// Match reports whether path, slash-separated and relative to the base of the
// walk, matches. It takes time that grows with the path's length alone.
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
		return tool.Errorf(tool.Invalid, "the pattern has %d characters; at most %d are taken", utf8.RuneCountInString(pattern), MaxLength)
	case !pathname.Text(pattern):
		return tool.Errorf(tool.Invalid, "the pattern holds a control character, an invisible one, or bytes that are not UTF-8")
	case strings.HasPrefix(pattern, "/"):
		return tool.Errorf(tool.Invalid, "the pattern starts with /; write it relative to the directory that is searched")
	case climbs(pattern):
		return tool.Errorf(tool.Invalid, "the pattern has a . or .. segment; patterns only look downwards")
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

// alternatives bounds from above how many patterns the braces stand for.
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
