package conformance

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A value is raw JSON, because cases check the order of members and the text of numbers. A nil
// value means absent; null is a value.
type value = json.RawMessage

// nothing stands for an item that lacks the field in a list of "*"; no literal of a case equals it.
var nothing = quote("\x00nothing")

var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\s+|[,:]`)

// dump formats JSON with ", " and ": " as separators and minimal escapes. The checks of text and
// length use this form.
func dump(v value) string {
	return token.ReplaceAllStringFunc(string(v), func(t string) string {
		switch t[0] {
		case '"':
			s, _ := textOf(value(t))
			return string(quote(s))
		case ',', ':':
			return t + " "
		}
		return "" // white space
	})
}

func quote(s string) value {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return bytes.TrimSpace(b.Bytes())
}

// textOf returns the text of a JSON string.
func textOf(v value) (s string, ok bool) {
	return s, isText(v) && json.Unmarshal(v, &s) == nil
}

func isText(v value) bool   { return len(v) > 0 && v[0] == '"' }
func isObject(v value) bool { return len(v) > 0 && v[0] == '{' }
func isList(v value) bool   { return len(v) > 0 && v[0] == '[' }

func members(v value) (o map[string]value) {
	if isObject(v) {
		_ = json.Unmarshal(v, &o)
	}
	return o
}

func items(v value) (l []value) {
	if isList(v) {
		_ = json.Unmarshal(v, &l)
	}
	return l
}

// get follows a dotted path: names, list indexes, negative indexes from the end, and "*" for all
// items of a list.
func get(v value, path string) value { return follow(v, strings.Split(path, ".")) }

func follow(v value, parts []string) value {
	switch {
	case len(parts) == 0:
		return v
	case parts[0] == "*" && isList(v):
		return followAll(items(v), parts[1:])
	case parts[0] == "*":
		return nil
	case isList(v):
		list := items(v)
		i, err := strconv.Atoi(parts[0])
		if i < 0 {
			i += len(list)
		}
		if err != nil || i < 0 || i >= len(list) {
			return nil
		}
		return follow(list[i], parts[1:])
	}
	o := members(v)
	for n := len(parts); n > 0; n-- { // a name may itself contain dots: try the longest first
		if inner, ok := o[strings.Join(parts[:n], ".")]; ok {
			return follow(inner, parts[n:])
		}
	}
	return nil
}

func followAll(list []value, rest []string) value {
	all := make([][]byte, len(list))
	for i, item := range list {
		if all[i] = follow(item, rest); all[i] == nil {
			all[i] = nothing
		}
	}
	return slices.Concat(value("["), bytes.Join(all, []byte(",")), value("]"))
}

// same compares JSON values: true isn't 1, but 1 is 1.0.
func same(a, b value) bool { return sameParsed(parsed(a), parsed(b)) }

func parsed(v value) (out any) {
	dec := json.NewDecoder(bytes.NewReader(v))
	dec.UseNumber()
	_ = dec.Decode(&out)
	return out
}

func sameParsed(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && ordered(rational(string(x)), "=", rational(string(y)))
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameParsed)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, sameParsed)
	}
	return a == b
}

// rational returns the exact value of a number's text, or nil if it isn't a number: a big integer
// isn't its nearest float.
func rational(text string) *big.Rat {
	if r, ok := new(big.Rat).SetString(strings.TrimSpace(text)); ok {
		return r
	}
	return nil
}

func ordered(a *big.Rat, op string, b *big.Rat) bool {
	if a == nil || b == nil {
		return false
	}
	c := a.Cmp(b)
	switch op {
	case "=":
		return c == 0
	case "!=":
		return c != 0
	case ">":
		return c > 0
	case "<":
		return c < 0
	case ">=":
		return c >= 0
	}
	return c <= 0
}

// size counts characters of a text, items of a list or members of an object.
func size(v value) (n int, sized bool) {
	if s, ok := textOf(v); ok {
		return utf8.RuneCountInString(s), true
	}
	return max(len(items(v)), len(members(v))), isList(v) || isObject(v)
}

// show returns a short form of a value for a report.
func show(v value) string {
	if v == nil {
		return "nothing"
	}
	return clip(dump(v), 160)
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
