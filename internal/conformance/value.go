package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A JSON value is nil, bool, number, string, []any or *object. Text of a number
// and order of an object's members are kept, because the cases look at both.
type (
	number string
	object struct {
		names  []string
		member map[string]any
	}
)

// missing is what a path leads to when nothing is there; null is something.
type missing struct{}

func newObject() *object { return &object{member: map[string]any{}} }

func (o *object) set(name string, value any) {
	if _, again := o.member[name]; !again {
		o.names = append(o.names, name)
	}
	o.member[name] = value
}

// parse reads exactly one JSON value.
func parse(raw []byte) (any, error) {
	if !json.Valid(raw) {
		return nil, errors.New("not one JSON value")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	value, err := parseNext(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return value, nil
}

func parseNext(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Number:
		return number(v), nil
	case json.Delim:
		if v == '{' {
			return parseObject(dec)
		}
		return parseList(dec)
	}
	return token, nil
}

func parseObject(dec *json.Decoder) (any, error) {
	o := newObject()
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		value, err := parseNext(dec)
		if err != nil {
			return nil, err
		}
		o.set(name.(string), value)
	}
	_, err := dec.Token()
	return o, err
}

func parseList(dec *json.Decoder) (any, error) {
	list := []any{}
	for dec.More() {
		value, err := parseNext(dec)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, err := dec.Token()
	return list, err
}

// dump writes value the way the reference implementation prints JSON: ", " and
// ": " between, only what must be escaped is, numbers in their shortest form.
// The checks for text and length are about this form.
func dump(value any) string {
	var b strings.Builder
	dumpTo(&b, value)
	return b.String()
}

func dumpTo(b *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case number:
		b.WriteString(v.canonical())
	case string:
		dumpString(b, v)
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			separate(b, i)
			dumpTo(b, item)
		}
		b.WriteByte(']')
	case *object:
		b.WriteByte('{')
		for i, name := range v.names {
			separate(b, i)
			dumpString(b, name)
			b.WriteString(": ")
			dumpTo(b, v.member[name])
		}
		b.WriteByte('}')
	}
}

func separate(b *strings.Builder, i int) {
	if i > 0 {
		b.WriteString(", ")
	}
}

var escapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`,
}

func dumpString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch escaped, special := escapes[r]; {
		case special:
			b.WriteString(escaped)
		case r < ' ':
			b.WriteString(`\u00` + string("0123456789abcdef"[r>>4]) + string("0123456789abcdef"[r&15]))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func (n number) isInt() bool { return !strings.ContainsAny(string(n), ".eE") }

// exact is the value of n, or an infinity's sign where a float can't hold it.
func (n number) exact() (value *big.Rat, infinite int) {
	if n.isInt() {
		i, _ := new(big.Int).SetString(string(n), 10)
		return new(big.Rat).SetInt(i), 0
	}
	f, _ := strconv.ParseFloat(string(n), 64)
	if r := new(big.Rat).SetFloat64(f); r != nil {
		return r, 0
	}
	if f < 0 {
		return nil, -1
	}
	return nil, 1
}

// compare orders two numbers exactly: a big integer is not its nearest float.
func (n number) compare(m number) int {
	a, aInf := n.exact()
	b, bInf := m.exact()
	if a == nil || b == nil {
		return aInf - bInf
	}
	return a.Cmp(b)
}

func (n number) canonical() string {
	if n.isInt() {
		i, _ := new(big.Int).SetString(string(n), 10)
		return i.String()
	}
	f, _ := strconv.ParseFloat(string(n), 64)
	if _, infinite := n.exact(); infinite != 0 {
		return map[int]string{1: "Infinity", -1: "-Infinity"}[infinite]
	}
	return floatText(f)
}

// floatText prints a float with the fewest digits that read back as the same,
// with an exponent below 1e-4 and from 1e16 on.
func floatText(f float64) string {
	text := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(text[strings.IndexByte(text, 'e')+1:])
	if f != 0 && (exponent < -4 || exponent >= 16) {
		return text
	}
	text = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// same is equality of JSON values: true is not 1, but 1 is 1.0.
func same(a, b any) bool {
	switch x := a.(type) {
	case number:
		y, ok := b.(number)
		return ok && x.compare(y) == 0
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case *object:
		y, ok := b.(*object)
		return ok && maps.EqualFunc(x.member, y.member, same)
	case missing:
		return false
	}
	switch b.(type) {
	case nil, bool, string:
		return a == b
	}
	return false
}

// size counts characters of a text, items of a list or members of an object.
func size(value any) (int, bool) {
	switch v := value.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case []any:
		return len(v), true
	case *object:
		return len(v.names), true
	}
	return 0, false
}
