package main

import (
	"strconv"
	"strings"
	"unicode"
)

// printable escapes what could steer a terminal: control characters other than
// newline and tab, and the Unicode characters that turn the direction of text.
// Names and messages may come from a hostile program.
func printable(s string) string {
	if strings.IndexFunc(s, unsafe) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafe(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unsafe(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar)
}
