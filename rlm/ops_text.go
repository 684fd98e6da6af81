package rlm

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/wisbox/wisbox/tool"
)

// sliceArgs are the arguments of slice: code points from start up to end, by
// Python's rules: negative ones count from the end, and both are clamped.
type sliceArgs struct {
	Input string `json:"input,omitempty" default:"context"`
	Start *int64 `json:"start,omitempty"`
	End   *int64 `json:"end,omitempty"`
}

func (a sliceArgs) reads() []string { return []string{a.Input} }

func (a sliceArgs) apply(texts []*Text) (string, error) {
	t := texts[0]
	start, end := clamp(a.Start, 0, t.Chars()), clamp(a.End, t.Chars(), t.Chars())
	if start >= end {
		return "", nil
	}
	return t.s[t.offset(start):t.offset(end)], nil
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

func (a countArgs) apply(texts []*Text) (string, error) {
	if a.Mode == "chars" {
		return strconv.Itoa(texts[0].Chars()), nil
	}
	text := strings.TrimFunc(texts[0].s, isPythonSpace)
	if text == "" {
		return "0", nil
	}
	return strconv.Itoa(strings.Count(text, "\n") + 1), nil
}

// isPythonSpace is what str.strip of Python strips.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }

// chunkArgs are the arguments of chunk: at most n groups of ceil(lines/n) lines.
type chunkArgs struct {
	Input string `json:"input,omitempty" default:"context"`
	N     int64  `json:"n" min:"1"`
}

func (a chunkArgs) reads() []string { return []string{a.Input} }

func (a chunkArgs) apply(texts []*Text) (string, error) {
	lines := int64(texts[0].Lines())
	size := (lines-1)/a.N + 1
	rest, left := texts[0].s, lines
	list := newList(len(rest))
	for ; left > size; left -= size {
		end := endOfLine(rest, size)
		list.add(rest[:end])
		rest = rest[end+1:]
	}
	list.add(rest)
	return list.String(), nil
}

// endOfLine is where the n-th line of s ends; s has more than n.
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

func (a splitArgs) apply(texts []*Text) (string, error) {
	delimiter := "\n"
	if a.Delimiter != nil {
		delimiter = *a.Delimiter
	}
	if delimiter == "" {
		return "", tool.Errorf(tool.Invalid, "delimiter is empty; give the text that stands between the parts").In("delimiter")
	}
	rest := texts[0].s
	list := newList(len(rest))
	for {
		part, after, found := strings.Cut(rest, delimiter)
		list.add(part)
		if !found {
			return list.String(), nil
		}
		rest = after
	}
}
