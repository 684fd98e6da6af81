package rlm

import (
	"crypto/sha256"
	"strings"
	"sync"
	"unicode/utf8"
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
func (t *Text) offset(n int) int {
	if t.Chars() == len(t.s) {
		return n
	}
	if n <= t.Chars()/2 {
		return forward(t.s, n)
	}
	return backward(t.s, t.Chars()-n)
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
