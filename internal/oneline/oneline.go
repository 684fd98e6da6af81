// Package oneline makes a pattern for single lines search many lines at once.
package oneline

import (
	"regexp/syntax"
	"slices"
)

// Rewrite changes a parsed pattern so that in a text of many lines it matches what it would match
// in each line alone.
func Rewrite(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpBeginText:
		re.Op = syntax.OpBeginLine
	case syntax.OpEndText:
		re.Op, re.Flags = syntax.OpEndLine, re.Flags&^syntax.WasDollar
	case syntax.OpAnyChar:
		re.Op = syntax.OpAnyCharNotNL
	case syntax.OpCharClass:
		re.Rune = withoutNewline(re.Rune)
		if len(re.Rune) == 0 {
			re.Op = syntax.OpNoMatch
		}
	case syntax.OpLiteral:
		if slices.Contains(re.Rune, '\n') {
			re.Op, re.Rune = syntax.OpNoMatch, nil
		}
	}
	for _, sub := range re.Sub {
		Rewrite(sub)
	}
}

// withoutNewline removes the newline from a class of pairs of bounds.
func withoutNewline(class []rune) []rune {
	var out []rune
	for i := 0; i+1 < len(class); i += 2 {
		lo, hi := class[i], class[i+1]
		if lo > '\n' || hi < '\n' {
			out = append(out, lo, hi)
			continue
		}
		if lo < '\n' {
			out = append(out, lo, '\n'-1)
		}
		if hi > '\n' {
			out = append(out, '\n'+1, hi)
		}
	}
	return out
}
