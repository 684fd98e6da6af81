package rlm

import (
	"regexp"
	"regexp/syntax"
	"strings"

	re2 "github.com/wasilibs/go-re2"

	"github.com/wisbox/wisbox/internal/oneline"
)

// largeText is from when on the start of the faster engine, which has no prefilter
// by literals but needs none, is worth it.
const largeText = 4 << 20

// finder is what the engines have in common.
type finder interface {
	FindAllStringIndex(s string, n int) [][]int
}

// matcher finds lines. A pattern that needs a literal is looked for by it first,
// and only lines that have the literal are matched; any other is searched for in
// many lines at once, in a form that can't match a newline.
type matcher struct {
	literal string         // must be in the line; "" for none
	exact   bool           // the literal is all there is to it
	line    *regexp.Regexp // matches one line
	block   finder         // finds one match a line in many
}

func newMatcher(pattern string, size int) (*matcher, error) {
	parsed, err := parsePattern(pattern)
	if err != nil {
		return nil, err
	}
	m := &matcher{}
	m.literal, m.exact = required(parsed)
	if strings.Contains(m.literal, "\n") {
		m.literal, m.exact = "", false
	}
	if m.literal != "" {
		m.line, err = regexp.Compile(pattern)
		return m, err
	}
	oneline.Rewrite(parsed)
	within := "(?:" + parsed.String() + ")[^\\n]*"
	if size >= largeText {
		if fast, err := re2.Compile(within); err == nil {
			m.block = fast
			return m, nil
		}
	}
	m.block, err = regexp.Compile(within)
	return m, err
}

// lines are the matching lines of one block.
func (m *matcher) lines(text string, block span) []span {
	if m.literal != "" {
		return m.byLiteral(text, block)
	}
	var out []span
	for _, found := range m.block.FindAllStringIndex(text[block.from:block.to], -1) {
		line := lineAt(text, block, block.from+found[0])
		if len(out) == 0 || out[len(out)-1] != line {
			out = append(out, line)
		}
	}
	return out
}

func (m *matcher) byLiteral(text string, block span) []span {
	var out []span
	for at := block.from; at < block.to; {
		i := strings.Index(text[at:block.to], m.literal)
		if i < 0 {
			break
		}
		line := lineAt(text, block, at+i)
		if m.exact || m.line.MatchString(text[line.from:line.to]) {
			out = append(out, line)
		}
		at = line.to + 1
	}
	return out
}

func lineAt(text string, block span, at int) span {
	line := span{block.from, block.to}
	if i := strings.LastIndexByte(text[block.from:at], '\n'); i >= 0 {
		line.from = block.from + i + 1
	}
	if i := strings.IndexByte(text[at:block.to], '\n'); i >= 0 {
		line.to = at + i
	}
	return line
}

// required is the longest literal that every match has; the bool tells that
// having it is enough.
func required(re *syntax.Regexp) (string, bool) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune), true
		}
	case syntax.OpCapture:
		return required(re.Sub[0])
	case syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			literal, _ := required(re.Sub[0])
			return literal, false
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if literal, _ := required(sub); len(literal) > len(longest) {
				longest = literal
			}
		}
		return longest, false
	}
	return "", false
}
