package vfs

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/oneline"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxPattern = 1_000    // characters
	maxSteps   = 20 << 20 // of a matcher between two checks of the clock
	maxClasses = 10 << 20 // characters in all classes of a pattern that may have another case
)

// linePattern is a regular expression that is matched against lines. It is rewritten so that no
// match spans lines, and so many lines can be searched at once with the same result.
type linePattern struct {
	std     *regexp.Regexp
	program *syntax.Prog
	need    []literal // a matching line has one of them; nil means none is known
	exact   bool      // an occurrence of need[0] is a match
	piece   int       // bytes to search at once
	broken  bool      // a part of it matches only line breaks, which no line has
}

func compileLines(pattern string, ignoreCase bool) (*linePattern, error) {
	if n := utf8.RuneCountInString(pattern); n > maxPattern {
		return nil, tool.Errorf(tool.Invalid, "the pattern has %d characters; the maximum is %d", n, maxPattern)
	}
	flags := syntax.Perl
	if ignoreCase {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(pattern, flags)
	if err != nil {
		return nil, patternError(err)
	}
	broken := hasLineBreak(tree)
	oneline.Rewrite(tree)
	beforeCR(tree)
	simple, program, ok := oneline.Compile(tree)
	if !ok || foldable(tree) > maxClasses {
		return nil, tool.Errorf(tool.Invalid, "the pattern is too large: its repetitions multiply, or it has too many large classes; simplify it")
	}
	p := &linePattern{broken: broken, program: program, piece: min(max(maxSteps/len(program.Inst), 4<<10), 256<<10)}
	text := tree.String() // not of the simple tree, where a repetition stands for all its copies
	if p.std, err = regexp.Compile(text); err != nil {
		return nil, tool.Errorf(tool.Invalid, "the pattern can't be compiled; simplify it")
	}
	p.need = required(simple)
	p.exact = len(p.need) == 1 && p.need[0].whole && simple.Op == syntax.OpLiteral
	return p, nil
}

// hasLineBreak reports whether a part of a pattern matches nothing but line breaks.
func hasLineBreak(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return slices.Contains(re.Rune, '\n')
	case syntax.OpCharClass:
		return slices.Equal(re.Rune, []rune{'\n', '\n'}) || slices.Equal(re.Rune, []rune{'\n', '\n', '\r', '\r'})
	}
	return slices.ContainsFunc(re.Sub, hasLineBreak)
}

// beforeCR makes $ match before the CR of a line that ends in CRLF, too.
func beforeCR(re *syntax.Regexp) {
	if re.Op == syntax.OpEndLine {
		end := *re
		cr := &syntax.Regexp{Op: syntax.OpLiteral, Rune: []rune{'\r'}}
		*re = syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{{Op: syntax.OpQuest, Sub: []*syntax.Regexp{cr}}, &end}}
		return
	}
	for _, sub := range re.Sub {
		beforeCR(sub)
	}
}

// foldable counts the characters of all classes that may have another case: printing a pattern
// checks each, which takes some 25 ns.
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

// patternError describes the error of a pattern. It leaves out the pattern's text.
func patternError(err error) error {
	var e *syntax.Error
	if !errors.As(err, &e) {
		return tool.Errorf(tool.Invalid, "the pattern is not a valid RE2 expression")
	}
	if what := unsupportedSyntax(e); what != "" {
		return tool.Errorf(tool.Unsupported, "the pattern uses %s, which RE2 does not have; match more and look at the lines, or use grep -P in shell_execute", what)
	}
	return tool.Errorf(tool.Invalid, "the pattern is not a valid RE2 expression: %s; for the characters themselves write \\ before each of \\ . + * ? ( ) | [ ] { } ^ $", string(e.Code))
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
