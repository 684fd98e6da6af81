package rlm

import (
	"errors"
	"iter"
	"regexp/syntax"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

const maxPattern = 1000 // characters

// grepArgs are the arguments of grep, which returns the lines that match an RE2 pattern. Only
// "\n" ends a line.
type grepArgs struct {
	Input   string `json:"input,omitempty" default:"context"`
	Pattern string `json:"pattern"`
}

func (a grepArgs) reads() []string { return []string{a.Input} }

func (a grepArgs) apply(texts []*Text, b *budget.Budget) (string, error) {
	m, err := newMatcher(a.Pattern)
	if err != nil {
		return "", err
	}
	return grep(texts[0].s, m, b)
}

// parsePattern parses a pattern, and explains constructs that RE2 doesn't support.
func parsePattern(pattern string) (*syntax.Regexp, error) {
	if NewText(pattern).Chars() > maxPattern {
		return nil, tool.Errorf(tool.Invalid, "pattern is too long; the maximum is %d characters", maxPattern).In("pattern")
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err == nil {
		return re, nil
	}
	var known *syntax.Error
	if errors.As(err, &known) && isPerlOnly(known) {
		return nil, tool.Errorf(tool.Unsupported, "pattern: %q is not supported; patterns are RE2, without lookaround, back-references, possessive and atomic groups", clip(known.Expr, 80)).In("pattern")
	}
	return nil, tool.Errorf(tool.Invalid, "pattern is not a regular expression: %s", clip(strings.TrimPrefix(err.Error(), "error parsing regexp: "), 200)).In("pattern")
}

func isPerlOnly(err *syntax.Error) bool {
	switch err.Code {
	case syntax.ErrInvalidPerlOp:
		return true
	case syntax.ErrInvalidNamedCapture:
		return strings.HasPrefix(err.Expr, "(?<=") || strings.HasPrefix(err.Expr, "(?<!")
	case syntax.ErrInvalidEscape:
		return len(err.Expr) > 1 && strings.ContainsRune("123456789kgZGKRXhHvNu", rune(err.Expr[1]))
	case syntax.ErrInvalidRepeatOp:
		return strings.HasSuffix(err.Expr, "+")
	}
	return false
}

// span is a range of the text: whole lines, without the newline after the last.
type span struct{ from, to int }

// Parts of a search. Each goroutine takes a block at a time. The lines found in a batch of
// blocks, whose list may be much larger than the text itself, are joined before the next batch.
const (
	blockSize  = 256 << 10
	maxWorkers = 8
)

// grep returns the lines that m finds.
func grep(text string, m *matcher, b *budget.Budget) (string, error) {
	out := &joiner{text: text, budget: b}
	workers := min(runtime.GOMAXPROCS(0), maxWorkers)
	for batch := range slices.Chunk(cutBlocks(text), 2*workers) {
		found := make([][]span, len(batch))
		if err := parallel(min(workers, len(batch)), len(batch), func(i int) (err error) {
			found[i], err = m.lines(text, batch[i], b)
			return err
		}); err != nil {
			return "", err
		}
		for _, s := range slices.Concat(found...) {
			if err := out.add(s); err != nil {
				return "", err
			}
		}
	}
	return out.end()
}

// parallel calls work for 0 to n-1, and returns the first error once all goroutines have
// ended.
func parallel(workers, n int, work func(i int) error) error {
	var next atomic.Int64
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := work(i); err != nil {
					next.Store(int64(n))
					return err
				}
			}
		})
	}
	return group.Wait()
}

// cutBlocks cuts a text at line ends: every line is in one block.
func cutBlocks(text string) []span {
	return slices.Collect(pieces(text, span{0, len(text)}, blockSize))
}

// pieces cuts a range at line ends, into pieces of at least size bytes except for the last.
func pieces(text string, all span, size int) iter.Seq[span] {
	return func(yield func(span) bool) {
		from := all.from
		for all.to-from > size {
			end := strings.IndexByte(text[from+size:all.to], '\n')
			if end < 0 {
				break
			}
			end += from + size
			if !yield(span{from, end}) {
				return
			}
			from = end + 1
		}
		yield(span{from, all.to})
	}
}

// keep appends a line to the lines found. Adjacent lines share a span.
func keep(found []span, line span) []span {
	if last := len(found) - 1; last >= 0 && found[last].to+1 == line.from {
		found[last].to = line.to
		return found
	}
	return append(found, line)
}

// joiner joins lines. It copies nothing if all lines are kept.
type joiner struct {
	text   string
	budget *budget.Budget

	out   []byte
	joins int  // number of spans in out
	last  span // not yet in out
	has   bool
}

func (j *joiner) add(s span) error {
	if j.has && j.last.to+1 == s.from {
		j.last.to = s.to
		return nil
	}
	err := j.flush()
	j.last, j.has = s, true
	return err
}

func (j *joiner) flush() error {
	if !j.has {
		return nil
	}
	if err := j.budget.Out(j.last.to - j.last.from + 1); err != nil {
		return err
	}
	if j.joins > 0 {
		j.out = append(j.out, '\n')
	}
	j.out = append(j.out, j.text[j.last.from:j.last.to]...)
	j.joins++
	return nil
}

func (j *joiner) end() (string, error) {
	if j.joins == 0 {
		return part(j.text, j.last.from, j.last.to, j.budget)
	}
	if err := j.flush(); err != nil {
		return "", err
	}
	return text(j.out), nil
}
