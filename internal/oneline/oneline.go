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

// MaxProgram is the maximum number of instructions of a pattern's program. A repetition stands for all its copies, so a
// short pattern could have a million of them, which take 100 MB and a second.
const MaxProgram = 6_000

// Compile returns a parsed pattern without repetitions, and its program; ok is false if that is larger than MaxProgram.
// It doesn't make a program that is much larger.
func Compile(re *syntax.Regexp) (simple *syntax.Regexp, program *syntax.Prog, ok bool) {
	const slack = 4 // size may count more than the program has
	if size(re) > slack*MaxProgram {
		return nil, nil, false
	}
	simple = re.Simplify()
	program, err := syntax.Compile(simple)
	return simple, program, err == nil && len(program.Inst) <= MaxProgram
}

// size estimates the number of instructions of a pattern, without making its copies.
func size(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += size(sub)
	}
	const most = 1 << 30
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCapture:
		n += 2
	case syntax.OpAlternate:
		n += len(re.Sub)
	case syntax.OpRepeat:
		copies := max(re.Min+1, re.Max)
		if re.Max == 0 {
			return 1
		}
		n = copies * (n + 1)
	case syntax.OpConcat:
	default:
		n += 2
	}
	return min(n, most)
}
