package rlm

import (
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/oneline"
	"github.com/wisbox/wisbox/tool"
)

// matcher finds lines. If each match of a pattern contains a literal, it searches for the
// literal first and matches only the lines that have it. It searches for any other pattern in
// many lines at once, in a form that can't match a newline.
//
// No engine can be interrupted, so none gets more than piece bytes at a time. A longer line is
// matched by an engine that reads one character at a time.
type matcher struct {
	literal string         // must be in the line; "" means none
	exact   bool           // the literal is the whole pattern
	line    *regexp.Regexp // matches one line
	finders sync.Pool      // of *oneline.Finder, for patterns without a literal
	piece   int            // bytes
}

// pieceWork bounds the work between two checks of the budget: the number of a pattern's
// instructions times the bytes of text. It takes some tenths of a second if every instruction
// is active on every byte.
const pieceWork = 16 << 20

func newMatcher(pattern string) (*matcher, error) {
	parsed, err := parsePattern(pattern)
	if err != nil {
		return nil, err
	}
	_, program, ok := oneline.Compile(parsed)
	if !ok {
		return nil, tool.Errorf(tool.Invalid, "pattern is too large: its repetitions multiply; simplify it").In("pattern")
	}
	m := &matcher{piece: min(blockSize, pieceWork/len(program.Inst))}
	if m.line, err = regexp.Compile(pattern); err != nil {
		return nil, err
	}
	m.literal, m.exact = required(parsed)
	if strings.Contains(m.literal, "\n") {
		m.literal, m.exact = "", false
	}
	if m.literal != "" {
		return m, nil
	}
	oneline.Rewrite(parsed)
	within, err := regexp.Compile(parsed.String())
	if err != nil {
		return nil, err
	}
	m.finders.New = func() any { return oneline.NewFinder(within, program) }
	return m, nil
}

// lines returns the matching lines of a block.
func (m *matcher) lines(text string, block span, b *budget.Budget) ([]span, error) {
	if m.literal != "" {
		return m.byLiteral(text, block, b)
	}
	var out []span
	for piece := range pieces(text, block, m.piece) {
		if err := b.Check(); err != nil {
			return nil, err
		}
		found, err := m.inPiece(text, piece, b)
		if err != nil {
			return nil, err
		}
		for _, line := range found {
			out = keep(out, line)
		}
	}
	return out, nil
}

// inPiece returns the matching lines of a piece. Only its last line may be long.
func (m *matcher) inPiece(text string, piece span, b *budget.Budget) ([]span, error) {
	var out []span
	last := span{piece.from + strings.LastIndexByte(text[piece.from:piece.to], '\n') + 1, piece.to}
	if last.to-last.from <= m.piece {
		return m.search(text, piece), nil
	}
	if last.from > piece.from {
		out = m.search(text, span{piece.from, last.from - 1})
	}
	matches, err := m.matches(text[last.from:last.to], b)
	if matches {
		out = keep(out, last)
	}
	return out, err
}

func (m *matcher) search(text string, piece span) []span {
	finder := m.finders.Get().(*oneline.Finder)
	defer m.finders.Put(finder)
	var out []span
	for from := piece.from; from <= piece.to; {
		start, end := finder.Line(text[from:piece.to])
		if start < 0 {
			break
		}
		out = keep(out, span{from + start, from + end})
		from += end + 1
	}
	return out
}

func (m *matcher) byLiteral(text string, block span, b *budget.Budget) ([]span, error) {
	var out []span
	for at := block.from; at < block.to; {
		if err := b.Step(1); err != nil {
			return nil, err
		}
		i := strings.Index(text[at:block.to], m.literal)
		if i < 0 {
			break
		}
		line := lineAt(text, block, at+i)
		matches := m.exact
		if !matches {
			var err error
			if matches, err = m.matches(text[line.from:line.to], b); err != nil {
				return nil, err
			}
		}
		if matches {
			out = keep(out, line)
		}
		at = line.to + 1
	}
	return out, b.Check()
}

// matches reports whether a line matches the pattern.
func (m *matcher) matches(line string, b *budget.Budget) (bool, error) {
	if len(line) <= m.piece {
		if len(line) > m.piece/checkedLines {
			if err := b.Check(); err != nil {
				return false, err
			}
		}
		return m.line.MatchString(line), nil
	}
	r := &lineReader{line: line, budget: b, every: m.piece}
	found := m.line.MatchReader(r)
	return found, r.err
}

// checkedLines is the number of lines between two checks of the clock: the budget's own steps
// check it only every 256.
const checkedLines = 256

// lineReader reads a line for a search, and ends the search with the budget.
type lineReader struct {
	line   string
	budget *budget.Budget
	every  int // bytes between two checks of the budget
	left   int
	err    error
}

// ReadRune implements io.RuneReader.
func (r *lineReader) ReadRune() (rune, int, error) {
	if r.left--; r.left < 0 {
		r.left = r.every
		if r.err = r.budget.Check(); r.err != nil {
			r.line = ""
		}
	}
	if r.line == "" {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRuneInString(r.line)
	r.line = r.line[size:]
	return c, size, nil
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

// required returns the longest literal that every match contains, and whether each text with
// the literal is a match.
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
