package streams

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// Printable escapes characters that could control a terminal: control characters other than newline
// and tab, and Unicode's bidirectional controls. Names and messages may come from a hostile
// program.
func Printable(s string) string {
	return replaceUnsafe(s, func(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") })
}

// PrintableJSON is like Printable for JSON text: the escapes don't change the value.
func PrintableJSON(s string) string {
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

// WriteJSON writes v on one line. It escapes characters that JSON allows but that could control a
// terminal.
func WriteJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, PrintableJSON(b.String()))
	return err
}
