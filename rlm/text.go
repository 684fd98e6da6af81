package rlm

import (
	"crypto/sha256"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/budget"
)

// Text is an immutable text. It computes properties that the operations need again and again
// only once. It may be used from many goroutines at once.
type Text struct {
	s     string
	chars func() int
	sum   func() [sha256.Size]byte
}

// NewText returns a Text of s, which must be valid UTF-8.
func NewText(s string) *Text {
	return &Text{
		s:     s,
		chars: sync.OnceValue(func() int { return utf8.RuneCountInString(s) }),
		sum:   sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256([]byte(s)) }),
	}
}

// String returns the whole text.
func (t *Text) String() string { return t.s }

// Chars returns its length in code points.
func (t *Text) Chars() int { return t.chars() }

// Lines returns the number of lines: "a\nb\n" has three, "a", "b" and "".
func (t *Text) Lines() int { return strings.Count(t.s, "\n") + 1 }

// SHA256 returns the digest of its bytes.
func (t *Text) SHA256() [sha256.Size]byte { return t.sum() }

// Bindings are texts by name. The operations only read them.
type Bindings map[string]*Text

// offset returns the byte offset of the n-th code point of t; n is at most Chars.
func (t *Text) offset(n int, b *budget.Budget) (int, error) {
	if t.Chars() == len(t.s) {
		return n, b.Check()
	}
	if n <= t.Chars()/2 {
		return count(n, b, func(at, n int) int { return at + forward(t.s[at:], n) }, 0)
	}
	return count(t.Chars()-n, b, func(at, n int) int { return backward(t.s[:at], n) }, len(t.s))
}

// count returns the offset n code points after at. It advances by a bounded number at a time.
func count(n int, b *budget.Budget, by func(at, n int) int, at int) (int, error) {
	for ; n > 0; n -= min(n, stride) {
		if err := b.Check(); err != nil {
			return 0, err
		}
		at = by(at, min(n, stride))
	}
	return at, nil
}

// first returns the first n code points of t, and whether that is less than all.
func (t *Text) first(n int) (string, bool) {
	if t.Chars() <= n {
		return t.s, false
	}
	return t.s[:forward(t.s, n)], true
}

func forward(s string, n int) int {
	at := 0
	for ; n > 0; n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

func backward(s string, n int) int {
	at := len(s)
	for ; n > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return at
}
