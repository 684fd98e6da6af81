package rlm

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"unsafe"

	"github.com/wisbox/wisbox/internal/budget"
)

// jsonList writes parts as a JSON array of strings that keeps every character
// readable: only what JSON must escape is. The parts are gone through twice, so
// that what is too much is refused before anything is made.
func jsonList(parts iter.Seq[string], b *budget.Budget) (string, error) {
	size := len("[]")
	for part := range parts {
		n, err := quotedSize(part, b)
		if err == nil {
			err = b.Out(n + len(","))
		}
		if err != nil {
			return "", err
		}
		size += n + len(",")
	}
	buf := append(make([]byte, 0, size), '[')
	for part := range parts {
		if len(buf) > 1 {
			buf = append(buf, ',')
		}
		var err error
		if buf, err = appendString(buf, part, b); err != nil {
			return "", err
		}
	}
	return text(append(buf, ']')), nil
}

// text is buf as a string. Nobody may write to buf again.
func text(buf []byte) string { return unsafe.String(unsafe.SliceData(buf), len(buf)) }

// stride is how many bytes are gone through between two looks at the budget.
const stride = 1 << 18

// strides cuts s into pieces of that size and charges a step for each.
func strides(s string, b *budget.Budget, each func(piece string)) error {
	for first := true; first || s != ""; first = false {
		if err := b.Step(1); err != nil {
			return err
		}
		if len(s) > stride { // a look at the clock, whatever the number of steps
			if err := b.Check(); err != nil {
				return err
			}
		}
		n := min(len(s), stride)
		each(s[:n])
		s = s[n:]
	}
	return nil
}

// escaped is how many bytes a byte of a string has in JSON.
var escaped = func() (sizes [256]uint8) {
	for c := range sizes {
		sizes[c] = uint8(len(appendByte(nil, byte(c))))
	}
	return sizes
}()

func quotedSize(s string, b *budget.Budget) (int, error) {
	size := len(`""`)
	err := strides(s, b, func(piece string) {
		for i := range len(piece) {
			size += int(escaped[piece[i]])
		}
	})
	return size, err
}

func appendString(buf []byte, s string, b *budget.Budget) ([]byte, error) {
	buf = append(buf, '"')
	err := strides(s, b, func(piece string) {
		from := 0
		for i := range len(piece) {
			if escaped[piece[i]] > 1 {
				buf = appendByte(append(buf, piece[from:i]...), piece[i])
				from = i + 1
			}
		}
		buf = append(buf, piece[from:]...)
	})
	return append(buf, '"'), err
}

const hexDigits = "0123456789abcdef"

func appendByte(buf []byte, c byte) []byte {
	switch {
	case c == '\n':
		return append(buf, '\\', 'n')
	case c == '\t':
		return append(buf, '\\', 't')
	case c == '\r':
		return append(buf, '\\', 'r')
	case c == '"', c == '\\':
		return append(buf, '\\', c)
	case c < ' ':
		return append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(buf, c)
}

// values are what combine and map take: the items of the one JSON array, or the
// texts.
type values struct {
	array string // a valid JSON array, where there is one
	texts []*Text
	count int
}

func valuesOf(texts []*Text, b *budget.Budget) (values, error) {
	if len(texts) != 1 {
		return values{texts: texts, count: len(texts)}, nil
	}
	count, isArray := 0, true
	err := eachItem(texts[0].s, b, func(item string) error {
		count++
		if !validItem(item) {
			isArray = false
			return errNoArray
		}
		return nil
	})
	switch {
	case err == nil && isArray:
		return values{array: texts[0].s, count: count}, nil
	case err == nil || errors.Is(err, errNoArray):
		return values{texts: texts, count: 1}, nil
	}
	return values{}, err
}

func validItem(item string) bool {
	return json.Valid(unsafe.Slice(unsafe.StringData(item), len(item)))
}

// each calls take with every value in order: strings as they are, other items of
// an array as their JSON text. A value lives as long as the text that it is of.
func (v values) each(b *budget.Budget, take func(value string) error) error {
	if v.array != "" {
		return eachItem(v.array, b, func(item string) error {
			value, err := itemText(item, b)
			if err != nil {
				return err
			}
			return take(value)
		})
	}
	for _, t := range v.texts {
		if err := b.Step(1); err != nil {
			return err
		}
		if err := take(t.s); err != nil {
			return err
		}
	}
	return nil
}

// itemText decodes a string that has escapes; any other is a part of the array.
func itemText(item string, b *budget.Budget) (string, error) {
	if item[0] != '"' {
		return item, nil
	}
	if !strings.Contains(item, `\`) {
		return item[1 : len(item)-1], nil
	}
	if err := b.Hold(2 * len(item)); err != nil { // while it is decoded
		return "", err
	}
	defer b.Release(2 * len(item))
	var s string
	err := json.Unmarshal([]byte(item), &s)
	return s, err
}
