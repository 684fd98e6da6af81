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
// no room, but the two joiners and the two signs that choose an emoji's look, and not U+FFFD, which a decoder has put for bytes that
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
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || unicode.Is(invisible, r)
}

// invisible are characters without a sign that are in none of the categories above, assigned
// or not: variation selectors without U+FE0E and U+FE0F, which emoji have; fillers; and the
// empty pattern of Braille. The list is fixed, so it is the same for each version of Go.
var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, {Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, {Lo: 0x180b, Hi: 0x180f, Stride: 1}, {Lo: 0x2065, Hi: 0x2065, Stride: 1},
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0xfe00, Hi: 0xfe0d, Stride: 1}, {Lo: 0xfff0, Hi: 0xfff8, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}},
}
