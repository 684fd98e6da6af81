package capture

import (
	"strings"
	"unicode/utf8"
)

// Text returns b as valid UTF-8: every byte that isn't part of a character becomes U+FFFD.
func Text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// WholePrefix returns the length of b without an incomplete character at its end. Bytes that can't
// be a character count as complete.
func WholePrefix(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// brokenPrefix returns the length of bytes at the beginning of b that look like the end of a
// character.
func brokenPrefix(b []byte) int {
	for i := range min(len(b), utf8.UTFMax-1) {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return min(len(b), utf8.UTFMax-1)
}
