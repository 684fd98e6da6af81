package rlm

import (
	"iter"
	"strconv"
	"strings"
	"unicode"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// sliceArgs are the arguments of slice: the code points from start up to end, by Python's
// rules. Negative numbers count from the end, and both are clamped.
type sliceArgs struct {
	Input string `json:"input,omitempty" default:"context"`
	Start *int64 `json:"start,omitempty"`
	End   *int64 `json:"end,omitempty"`
}

func (a sliceArgs) reads() []string { return []string{a.Input} }

func (a sliceArgs) apply(texts []*Text, b *budget.Budget) (string, error) {
	t := texts[0]
	start, end := clamp(a.Start, 0, t.Chars()), clamp(a.End, t.Chars(), t.Chars())
	if start >= end {
		return "", nil
	}
	from, err := t.offset(start, b)
	if err != nil {
		return "", err
	}
	to, err := t.offset(end, b)
	if err != nil {
		return "", err
	}
	return part(t.s, from, to, b)
}

// part returns a copy of a range of s, so that a few characters don't keep all of s alive.
func part(s string, from, to int, b *budget.Budget) (string, error) {
	if to-from == len(s) {
		return s, nil
	}
	if err := b.Out(to - from); err != nil {
		return "", err
	}
	return strings.Clone(s[from:to]), nil
}

func clamp(index *int64, def, length int) int {
	if index == nil {
		return def
	}
	i, n := *index, int64(length)
	if i < 0 {
		i = max(0, n+max(i, -n))
	}
	return int(min(i, n))
}

// countArgs are the arguments of count: the lines of the stripped text, or the
// code points of the whole.
type countArgs struct {
	Input string `json:"input,omitempty" default:"context"`
	Mode  string `json:"mode,omitempty" default:"lines" enum:"lines|chars"`
}

func (a countArgs) reads() []string { return []string{a.Input} }

func (a countArgs) apply(texts []*Text, _ *budget.Budget) (string, error) { //nolint:unparam // like the others
	if a.Mode == "chars" {
		return strconv.Itoa(texts[0].Chars()), nil
	}
	text := strings.TrimFunc(texts[0].s, isPythonSpace)
	if text == "" {
		return "0", nil
	}
	return strconv.Itoa(strings.Count(text, "\n") + 1), nil
}

// isPythonSpace reports whether Python's str.strip strips a character.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }

// chunkArgs are the arguments of chunk: at most n groups of ceil(lines/n) lines.
type chunkArgs struct {
	Input string `json:"input,omitempty" default:"context"`
	N     int64  `json:"n" min:"1"`
}

func (a chunkArgs) reads() []string { return []string{a.Input} }

func (a chunkArgs) apply(texts []*Text, b *budget.Budget) (string, error) {
	lines := int64(texts[0].Lines())
	return jsonList(groups(texts[0].s, lines, (lines-1)/a.N+1), b)
}

// groups yields groups of size lines; the last one has the rest.
func groups(s string, lines, size int64) iter.Seq[string] {
	return func(yield func(string) bool) {
		rest := s
		for left := lines; left > size; left -= size {
			end := endOfLine(rest, size)
			if !yield(rest[:end]) {
				return
			}
			rest = rest[end+1:]
		}
		yield(rest)
	}
}

// endOfLine returns the end of the n-th line of s, which has more than n lines.
func endOfLine(s string, n int64) int {
	at := -1
	for ; n > 0; n-- {
		at += 1 + strings.IndexByte(s[at+1:], '\n')
	}
	return at
}

// splitArgs are the arguments of split: by a literal delimiter.
type splitArgs struct {
	Input     string  `json:"input,omitempty" default:"context"`
	Delimiter *string `json:"delimiter,omitempty"`
}

func (a splitArgs) reads() []string { return []string{a.Input} }

func (a splitArgs) apply(texts []*Text, b *budget.Budget) (string, error) {
	delimiter := "\n"
	if a.Delimiter != nil {
		delimiter = *a.Delimiter
	}
	if delimiter == "" {
		return "", tool.Errorf(tool.Invalid, "delimiter is empty; give the text that stands between the parts").In("delimiter")
	}
	return jsonList(partsOf(texts[0].s, delimiter), b)
}

// partsOf splits s like strings.SplitSeq, but can be ranged over more than once.
func partsOf(s, delimiter string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest, more := s, true; more; {
			var part string
			if part, rest, more = strings.Cut(rest, delimiter); !yield(part) {
				return
			}
		}
	}
}
