// Package clip shortens texts for messages and records.
package clip

import "unicode/utf8"

// MaxText is the maximum length of a text in a record, in bytes.
const MaxText = 300

// Text returns at most MaxText bytes from the beginning of a text.
func Text(s string) string { return To(s, MaxText) }

// To returns at most n bytes from the beginning of a text, cut between characters.
func To(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Words returns at most 80 characters of a caller's own words, to repeat in a message.
func Words(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
