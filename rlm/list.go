package rlm

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"unsafe"

	"github.com/wisbox/wisbox/internal/budget"
)

// jsonList writes parts as a JSON array of strings. It escapes only the characters that JSON
// requires, so that the rest stays readable. It goes through the parts twice, to refuse a
// result that is too large before it allocates it.
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

// text returns buf as a string. The caller must not write to buf again.
func text(buf []byte) string { return unsafe.String(unsafe.SliceData(buf), len(buf)) }

// stride is the number of bytes between two checks of the budget.
const stride = 1 << 18

// strides cuts s into pieces of that size and charges a step for each.
func strides(s string, b *budget.Budget, each func(piece string)) error {
	for first := true; first || s != ""; first = false {
		if err := b.Step(1); err != nil {
			return err
		}
		if len(s) > stride { // check the clock, whatever the number of steps
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

// escaped is the number of bytes that each byte of a string takes in JSON.
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

// values are the inputs of combine and map: the items of the only text if it is a JSON
// array, else the texts.
type values struct {
	array string // a valid JSON array, or ""
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

// each calls take with every value in order: strings as they are, other items of an array as
// their JSON text. A value is valid as long as its text.
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

// itemText returns an item's text. It decodes strings with escapes; other items are parts of
// the array.
func itemText(item string, b *budget.Budget) (string, error) {
	if item[0] != '"' {
		return item, nil
	}
	if !strings.Contains(item, `\`) {
		return item[1 : len(item)-1], nil
	}
	if err := b.Hold(2 * len(item)); err != nil { // during the decoding
		return "", err
	}
	defer b.Release(2 * len(item))
	var s string
	err := json.Unmarshal([]byte(item), &s)
	return s, err
}
