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
	tree = tree.Simplify()
	program, err := syntax.Compile(tree)
	if err != nil || len(program.Inst) > maxProgram {
		return nil, tool.Errorf(tool.Invalid, "the pattern is too large: its repetitions multiply; write it smaller")
	}
	p := &linePattern{piece: min(max(maxSteps/len(program.Inst), 4<<10), 256<<10)}
	if p.std, err = regexp.Compile(tree.String()); err != nil {
		return nil, tool.Errorf(tool.Invalid, "the pattern can't be compiled; write it more simply")
	}
	p.empties = p.std.MatchString("")
	p.prepare(tree)
	return p, nil
}

func (p *linePattern) prepare(tree *syntax.Regexp) {
	p.need = required(tree)
	p.exact = len(p.need) == 1 && p.need[0].whole && tree.Op == syntax.OpLiteral
	if p.need == nil && !p.empties {
		p.re2, _ = re2.Compile(tree.String()) // what it doesn't take, std does
	}
}

// patternError tells what is wrong with a pattern; its own text is the caller's.
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
