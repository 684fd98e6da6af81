// Package pathname defines which characters a path or a pattern may contain. It knows
// nothing of segments, lengths or the files behind a path.
package pathname

import (
	"unicode"
	"unicode/utf8"
)

// ASCII reports whether s consists of printable ASCII.
func ASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Characters that join others into one grapheme: names in Persian and with emoji have them.
const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
)

// Text reports whether s is UTF-8 in which each character is visible: no control characters,
// Unicode line ends, bidirectional controls or characters without width, except for the two joiners
// and the two variation selectors of emoji. U+FFFD, which decoders put for invalid bytes, isn't
// allowed either. Text normalises nothing: two texts are equal if their bytes are.
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
	case utf8.RuneError, '\u115f', '\u1160', '\u3164', '\uffa0': // the last are invisible letters of Hangul
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || unicode.Is(invisible, r)
}

// invisible are invisible characters, assigned or not, that are in none of the categories above:
// variation selectors, except for U+FE0E and U+FE0F of emoji; fillers; and the empty pattern of
// Braille. The list is fixed, so it doesn't depend on the version of Go.
var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, {Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, {Lo: 0x180b, Hi: 0x180f, Stride: 1}, {Lo: 0x2065, Hi: 0x2065, Stride: 1},
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0xfe00, Hi: 0xfe0d, Stride: 1}, {Lo: 0xfff0, Hi: 0xfff8, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}},
}
