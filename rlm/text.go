package rlm

import (
	"crypto/sha256"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/budget"
)

// Text is an immutable text with what the operations ask about it again and
// again, computed once. It may be used from many goroutines at once.
type Text struct {
	s     string
	chars func() int
	sum   func() [sha256.Size]byte
}

// NewText makes a Text of s, which is valid UTF-8.
func NewText(s string) *Text {
	return &Text{
		s:     s,
		chars: sync.OnceValue(func() int { return utf8.RuneCountInString(s) }),
		sum:   sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256([]byte(s)) }),
	}
}

// String is the whole text.
func (t *Text) String() string { return t.s }

// Chars is its length in code points.
func (t *Text) Chars() int { return t.chars() }

// Lines is how many lines it has: "a\nb\n" has three, "a", "b" and "".
func (t *Text) Lines() int { return strings.Count(t.s, "\n") + 1 }

// SHA256 is the digest of its bytes.
func (t *Text) SHA256() [sha256.Size]byte { return t.sum() }

// Bindings are texts by name. The operations only read them.
type Bindings map[string]*Text

// offset is where in t the code point of that number begins; n is at most Chars.
func (t *Text) offset(n int, b *budget.Budget) (int, error) {
	if t.Chars() == len(t.s) {
		return n, b.Check()
	}
	if n <= t.Chars()/2 {
		return count(n, b, func(at, n int) int { return at + forward(t.s[at:], n) }, 0)
	}
	return count(t.Chars()-n, b, func(at, n int) int { return backward(t.s[:at], n) }, len(t.s))
}

// count goes n code points on from at, some at a time.
func count(n int, b *budget.Budget, by func(at, n int) int, at int) (int, error) {
	for ; n > 0; n -= min(n, stride) {
		if err := b.Check(); err != nil {
			return 0, err
		}
		at = by(at, min(n, stride))
	}
	return at, nil
}

// first is the first n code points of t, and whether that is less than all.
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
