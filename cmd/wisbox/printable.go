package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// printable escapes characters that could control a terminal: control characters other than newline
// and tab, and Unicode's bidirectional controls. Names and messages may come from a hostile
// program.
func printable(s string) string {
	return replaceUnsafe(s, func(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") })
}

// printableJSON is like printable for JSON text: the escapes don't change the value.
func printableJSON(s string) string {
	return replaceUnsafe(s, func(r rune) string { return fmt.Sprintf(`\u%04x`, r) })
}

func replaceUnsafe(s string, by func(rune) string) string {
	if strings.IndexFunc(s, unsafe) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafe(r) {
			b.WriteString(by(r))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unsafe(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar)
}
