package vfs

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	re2 "github.com/wasilibs/go-re2"

	"github.com/wisbox/wisbox/internal/oneline"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxPattern = 1_000    // characters
	maxProgram = 5_000    // instructions that a pattern may compile to
	maxSteps   = 20 << 20 // of a matcher between two looks at the clock
	maxRE2     = 5_000    // bounds of character ranges in a program for RE2, which takes 15 µs for each
	maxClasses = 10 << 20 // characters in all classes of a pattern that may have another case
)

// linePattern is a regular expression that is asked of one line after the other.
// It is rewritten so that no match spans lines; so many lines can be searched in
// one go, with the same answer.
type linePattern struct {
	std     *regexp.Regexp
	re2     *re2.Regexp // fast where there is no literal to look for; nil: use std
	need    []literal   // a matching line has one of them; nil: no such thing is known
	exact   bool        // a match of need[0] is a match
	piece   int         // bytes to search in one go
	empties bool        // it matches the empty string
}

func compileLines(pattern string, ignoreCase bool) (*linePattern, error) {
	if n := utf8.RuneCountInString(pattern); n > maxPattern {
		return nil, tool.Errorf(tool.Invalid, "the pattern has %d characters; at most %d are taken", n, maxPattern)
	}
	flags := syntax.Perl
	if ignoreCase {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(pattern, flags)
	if err != nil {
		return nil, patternError(err)
	}
	oneline.Rewrite(tree)
	simple := tree.Simplify()
	program, err := syntax.Compile(simple)
	if err != nil || len(program.Inst) > maxProgram || foldable(tree) > maxClasses {
		return nil, tool.Errorf(tool.Invalid, "the pattern is too large: its repetitions multiply, or it has too many large classes; write it smaller")
	}
	p := &linePattern{piece: min(max(maxSteps/len(program.Inst), 4<<10), 256<<10)}
	text := tree.String() // not of the simple tree, where a repetition stands for all its copies
	if p.std, err = regexp.Compile(text); err != nil {
		return nil, tool.Errorf(tool.Invalid, "the pattern can't be compiled; write it more simply")
	}
	p.empties = p.std.MatchString("")
	p.need = required(simple)
	p.exact = len(p.need) == 1 && p.need[0].whole && simple.Op == syntax.OpLiteral
	if p.need == nil && !p.empties && ranges(program) <= maxRE2 {
		p.re2, _ = re2.Compile(text) // what it doesn't take, std does
	}
	return p, nil
}

// foldable counts the characters of all classes below the last one that has another
// case: writing a pattern down looks at each, some 25 ns.
func foldable(re *syntax.Regexp) (n int) {
	const last = 0x1E943
	if re.Op == syntax.OpCharClass {
		for i := 0; i+1 < len(re.Rune); i += 2 {
			n += max(int(min(re.Rune[i+1], last))-int(re.Rune[i])+1, 0)
		}
	}
	for _, sub := range re.Sub {
		n += foldable(sub)
	}
	return n
}

func ranges(program *syntax.Prog) (n int) {
	for _, inst := range program.Inst {
		n += len(inst.Rune)
	}
	return n
}

// patternError reports what is wrong with a pattern; its own text is the caller's.
func patternError(err error) error {
	var e *syntax.Error
	if !errors.As(err, &e) {
		return tool.Errorf(tool.Invalid, "the pattern is no RE2 expression")
	}
	if what := unsupportedSyntax(e); what != "" {
		return tool.Errorf(tool.Unsupported, "the pattern uses %s, which RE2 does not have; match more and look at the lines, or use grep -P in shell_execute", what)
	}
	return tool.Errorf(tool.Invalid, "the pattern is no RE2 expression: %s", string(e.Code))
}

func unsupportedSyntax(e *syntax.Error) string {
	look := []string{"(?=", "(?!", "(?<=", "(?<!"}
	switch {
	case slices.ContainsFunc(look, func(s string) bool { return strings.HasPrefix(e.Expr, s) }):
		return "lookaround"
	case strings.HasPrefix(e.Expr, "(?>"):
		return "an atomic group"
	case e.Code == syntax.ErrInvalidPerlOp:
		return "a Perl group"
	case e.Code == syntax.ErrInvalidEscape && len(e.Expr) > 1 && strings.ContainsAny(e.Expr[1:2], "123456789kg"):
		return "a back-reference"
	}
	return ""
}
