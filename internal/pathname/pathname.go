// Package pathname is the one rule of which characters a path or a pattern may hold. It
// knows nothing of segments, of lengths and of what a path leads to.
package pathname

import (
	"unicode"
	"unicode/utf8"
)

// ASCII reports whether s is printable ASCII alone.
func ASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Characters that join others into one sign: names in Persian and in emoji have them.
const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
)

// Text reports whether s is UTF-8 of which a reader sees each character: no control
// characters, no line ends of Unicode, none that turn the direction of writing or take
// no room, but the two joiners, and not U+FFFD, which a decoder has put for bytes that
// it could not read. Nothing is normalised: two texts are the same if their bytes are.
func Text(s string) bool {
	if ASCII(s) {
		return true
	}
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if hidden(r) {
			return false
		}
	}
	return true
}

func hidden(r rune) bool {
	switch r {
	case nonJoiner, joiner:
		return false
	case utf8.RuneError, '\u115f', '\u1160', '\u3164', '\uffa0': // the last are letters of Hangul without a sign
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
