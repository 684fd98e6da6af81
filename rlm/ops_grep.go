package rlm

import (
	"errors"
	"regexp/syntax"
	"runtime"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/tool"
)

const maxPattern = 1000 // characters

// grepArgs are the arguments of grep: the lines, ended by "\n" only, in which the
// RE2 pattern is found, joined by "\n".
type grepArgs struct {
	Input   string `json:"input,omitempty" default:"context"`
	Pattern string `json:"pattern"`
}

func (a grepArgs) reads() []string { return []string{a.Input} }

func (a grepArgs) apply(texts []*Text) (string, error) {
	m, err := newMatcher(a.Pattern, len(texts[0].s))
	if err != nil {
		return "", err
	}
	return grep(texts[0].s, m), nil
}

// parsePattern checks a pattern and says what RE2 can't do.
func parsePattern(pattern string) (*syntax.Regexp, error) {
	if NewText(pattern).Chars() > maxPattern {
		return nil, tool.Errorf(tool.Invalid, "pattern has more than %d characters", maxPattern).In("pattern")
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err == nil {
		return re, nil
	}
	var known *syntax.Error
	if errors.As(err, &known) && isPerlOnly(known) {
		return nil, tool.Errorf(tool.Unsupported, "pattern: %q is not supported; patterns are RE2, without lookaround, back-references, possessive and atomic groups", clip(known.Expr, 80)).In("pattern")
	}
	return nil, tool.Errorf(tool.Invalid, "pattern is no regular expression: %s", clip(strings.TrimPrefix(err.Error(), "error parsing regexp: "), 200)).In("pattern")
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

// blockSize is how much of a text one goroutine takes at a time.
const blockSize = 1 << 20

// grep keeps the lines that m finds.
func grep(text string, m *matcher) string {
	blocks := cutBlocks(text)
	found := make([][]span, len(blocks))
	var next sync.Mutex
	at := 0
	work := func() {
		for {
			next.Lock()
			i := at
			at++
			next.Unlock()
			if i >= len(blocks) {
				return
			}
			found[i] = m.lines(text, blocks[i])
		}
	}
	parallel(min(runtime.GOMAXPROCS(0), len(blocks)), work)
	return joinSpans(text, found)
}

func parallel(n int, work func()) {
	var group sync.WaitGroup
	for range n - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
}

// cutBlocks cuts at line ends; every line lies in one block.
func cutBlocks(text string) []span {
	var blocks []span
	from := 0
	for len(text)-from > blockSize {
		end := strings.IndexByte(text[from+blockSize:], '\n')
		if end < 0 {
			break
		}
		end += from + blockSize
		blocks = append(blocks, span{from, end})
		from = end + 1
	}
	return append(blocks, span{from, len(text)})
}

// joinSpans joins the lines; where all are kept nothing is copied.
func joinSpans(text string, found [][]span) string {
	var merged []span
	size := 0
	for _, block := range found {
		for _, s := range block {
			if last := len(merged) - 1; last >= 0 && merged[last].to+1 == s.from {
				merged[last].to = s.to
			} else {
				merged = append(merged, s)
			}
			size += s.to - s.from + 1
		}
	}
	if len(merged) == 1 {
		return text[merged[0].from:merged[0].to]
	}
	var b strings.Builder
	b.Grow(size)
	for i, s := range merged {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text[s.from:s.to])
	}
	return b.String()
}
