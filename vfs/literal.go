package vfs

import (
	"bytes"
	"math"
	"regexp/syntax"
	"strings"
	"unicode"
)

const (
	maxLiterals = 8 // looked for side by side
	minLiteral  = 2 // bytes: a single one is found too often to help
)

// literal is a text that matches of a pattern contain.
type literal struct {
	text  []byte // with fold: in lower case
	fold  bool   // case does not count; the text is ASCII
	whole bool   // it is the complete literal of the pattern
	rare  int    // the place of its least frequent byte
}

// required returns literals of which every match has at least one, or nil if none would help.
func required(re *syntax.Regexp) []literal {
	switch re.Op {
	case syntax.OpLiteral:
		return literalOf(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []literal
		for _, sub := range re.Sub {
			best = better(best, required(sub))
		}
		return best
	case syntax.OpAlternate:
		return union(re.Sub)
	}
	return nil
}

func union(subs []*syntax.Regexp) []literal {
	var all []literal
	for _, sub := range subs {
		one := required(sub)
		if one == nil || len(all)+len(one) > maxLiterals {
			return nil
		}
		all = append(all, one...)
	}
	return all
}

// better returns the set that probably occurs less often.
func better(a, b []literal) []literal {
	if a == nil || b != nil && shortest(b)-len(b) > shortest(a)-len(a) {
		return b
	}
	return a
}

func shortest(set []literal) int {
	n := len(set[0].text)
	for _, l := range set[1:] {
		n = min(n, len(l.text))
	}
	return n
}

func literalOf(re *syntax.Regexp) []literal {
	text, fold := string(re.Rune), re.Flags&syntax.FoldCase != 0
	l := literal{text: []byte(text), whole: true}
	if fold && hasCase(text) {
		part := longestPlainASCII(text)
		l = literal{text: []byte(strings.ToLower(part)), fold: true, whole: part == text}
	}
	if len(l.text) < minLiteral {
		return nil
	}
	l.rare = rarest(l.text)
	return []literal{l}
}

func hasCase(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.SimpleFold(r) != r })
}

// longestPlainASCII returns the longest part of s whose letters have only ASCII case variants: k
// and s also fold to other characters.
func longestPlainASCII(s string) string {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || strings.ContainsRune("kKsS", r) })
	best := ""
	for _, p := range parts {
		if len(p) > len(best) {
			best = p
		}
	}
	return best
}

// frequent lists bytes of ordinary text, the most frequent first.
const frequent = " etaoinrslcdupm\nfhg_b.y,(v)w\"k'=-x;:/T0SA1ICEqjzRPDN2LMF{}OB"

func rarest(text []byte) int {
	best, rank := 0, -1
	for i, c := range text {
		r := strings.IndexByte(frequent, c)
		if r < 0 {
			r = len(frequent)
		}
		if r > rank {
			best, rank = i, r
		}
	}
	return best
}

// index returns the offset of the first l in b[from:], or -1. It searches for the byte of l at
// rare.
func (l *literal) index(b []byte, from, rare int) int {
	c := l.text[rare]
	other := c
	if l.fold {
		other = upperOf(c)
	}
	for at := from + rare; at < len(b); at++ {
		i := indexEither(b[at:], c, other)
		if i < 0 {
			return -1
		}
		at += i
		start := at - rare
		if end := start + len(l.text); end <= len(b) && l.equal(b[start:end]) {
			return start
		}
	}
	return -1
}

func (l *literal) equal(b []byte) bool {
	if !l.fold {
		return bytes.Equal(b, l.text)
	}
	return l.equalFold(b)
}

// rarestIn returns the index of the byte of l that is the rarest by these counts.
func (l *literal) rarestIn(counts *[256]int) int {
	best, least := l.rare, math.MaxInt
	for i, c := range l.text {
		n := counts[c]
		if l.fold && upperOf(c) != c {
			n += counts[upperOf(c)]
		}
		if n < least {
			best, least = i, n
		}
	}
	return best
}

func upperOf(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

// indexEither searches one window at a time, so that it doesn't read far ahead for a rare byte at
// each match of the other.
func indexEither(b []byte, x, y byte) int {
	const window = 4 << 10
	if x == y {
		return bytes.IndexByte(b, x)
	}
	for at := 0; at < len(b); at += window {
		w := b[at:min(at+window, len(b))]
		i := bytes.IndexByte(w, x)
		if i >= 0 {
			w = w[:i]
		}
		if j := bytes.IndexByte(w, y); j >= 0 {
			i = j
		}
		if i >= 0 {
			return at + i
		}
	}
	return -1
}

func (l *literal) equalFold(b []byte) bool {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != l.text[i] {
			return false
		}
	}
	return true
}
