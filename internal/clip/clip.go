// Package clip cuts texts that a message or a record shows in part.
package clip

import "unicode/utf8"

// MaxText is how many bytes of one text a record holds.
const MaxText = 300

// Text is the beginning of a text, at most MaxText bytes of it.
func Text(s string) string { return To(s, MaxText) }

// To is the beginning of a text, at most n bytes of it, cut before a character and
// never within one.
func To(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Words are a caller's own words, short enough to repeat in a message: at most 80
// characters of them.
func Words(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
