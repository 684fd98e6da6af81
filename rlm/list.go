package rlm

import (
	"encoding/json"
	"strings"
	"unsafe"
)

// list writes texts as a JSON array of strings that keeps every character
// readable: only what JSON must escape is.
type list struct {
	buf []byte
}

func newList(size int) *list {
	return &list{buf: append(make([]byte, 0, size+size/8+16), '[')}
}

func (l *list) add(s string) {
	if len(l.buf) > 1 {
		l.buf = append(l.buf, ',')
	}
	l.buf = appendString(l.buf, s)
}

// String ends the list, which must not be added to any more.
func (l *list) String() string {
	l.buf = append(l.buf, ']')
	return unsafe.String(unsafe.SliceData(l.buf), len(l.buf)) // nobody writes to buf again
}

const hexDigits = "0123456789abcdef"

func appendString(buf []byte, s string) []byte {
	buf = append(buf, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			buf = append(buf, s[from:i]...)
			buf = appendEscape(buf, c)
			from = i + 1
		}
	}
	buf = append(buf, s[from:]...)
	return append(buf, '"')
}

func appendEscape(buf []byte, c byte) []byte {
	switch c {
	case '\n':
		return append(buf, '\\', 'n')
	case '\t':
		return append(buf, '\\', 't')
	case '\r':
		return append(buf, '\\', 'r')
	case '"', '\\':
		return append(buf, '\\', c)
	}
	return append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// items reads a JSON array: strings as they are, anything else as its JSON text.
// The bool is false when text is no array.
func items(text string) ([]string, bool) {
	if trimmed := strings.TrimLeft(text, " \t\r\n"); trimmed == "" || trimmed[0] != '[' {
		return nil, false
	}
	var raw []json.RawMessage
	if json.Unmarshal([]byte(text), &raw) != nil {
		return nil, false
	}
	out := make([]string, len(raw))
	for i, item := range raw {
		out[i] = itemText(item)
	}
	return out, true
}

func itemText(raw json.RawMessage) string {
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
