// Package redact puts stars in the place of secret values in what goes to models,
// people and logs. It finds a value as it stands and as JSON writes it, in texts,
// in values that become JSON, and in streams across the borders of their chunks.
//
// It guards against accidents. A program that encodes what it prints gets around
// it, and nothing but a program without the secret doesn't.
//
// A value keeps its length, so that sizes, offsets and columns stay right.
package redact

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
)

// MinLength is how many bytes a value, or a line of it, has at least to be
// found: shorter ones occur by chance.
const MinLength = 8

// Redactor knows some values. It doesn't change: its methods may be called from
// many goroutines at once. The nil Redactor knows none.
type Redactor struct{ values [][]byte }

// New knows the values; nil where there is nothing to find. Of a value of many
// lines each line counts, for output is often shown by line.
func New(values ...[]byte) *Redactor {
	r := &Redactor{}
	for _, v := range values {
		for line := range bytes.Lines(v) {
			r.add(bytes.TrimRight(line, "\r\n"))
		}
	}
	if len(r.values) == 0 {
		return nil
	}
	return r
}

// With knows some values more; r stays as it is.
func (r *Redactor) With(values ...[]byte) *Redactor {
	more := New(values...)
	switch {
	case r == nil:
		return more
	case more == nil:
		return r
	}
	out := &Redactor{values: slices.Clone(r.values)}
	for _, v := range more.values {
		if !slices.ContainsFunc(out.values, func(known []byte) bool { return bytes.Equal(known, v) }) {
			out.values = append(out.values, v)
		}
	}
	return out
}

func (r *Redactor) add(value []byte) {
	if len(value) < MinLength {
		return
	}
	r.values = append(r.values, value)
	quoted, err := json.Marshal(string(value))
	if inner := quoted[1 : len(quoted)-1]; err == nil && !bytes.Equal(inner, value) {
		r.values = append(r.values, inner)
	}
}

// Findable reports whether a value can be redacted at all.
func Findable(value []byte) bool { return New(value) != nil }

// In reports whether a text holds any of the values.
func (r *Redactor) In(text []byte) bool {
	return r != nil && slices.ContainsFunc(r.values, func(v []byte) bool { return bytes.Contains(text, v) })
}

// Text is a text without the values.
func (r *Redactor) Text(text string) string {
	if r == nil || !r.In([]byte(text)) {
		return text
	}
	out := []byte(text)
	r.cover(out, []byte(text))
	return string(out)
}

// cover puts stars over every value of text in out, which is as long, and gives
// the places as [from, to).
func (r *Redactor) cover(out, text []byte) (places [][2]int) {
	for _, v := range r.values {
		for from := 0; ; {
			i := bytes.Index(text[from:], v)
			if i < 0 {
				break
			}
			at := from + i
			stars(out[at : at+len(v)])
			places = append(places, [2]int{at, at + len(v)})
			from = at + 1
		}
	}
	return places
}

func stars(b []byte) {
	for i := range b {
		b[i] = '*'
	}
}

// begun is the length of the longest end of text that some value begins with.
func (r *Redactor) begun(text []byte) (longest int) {
	for _, v := range r.values {
		for n := min(len(v)-1, len(text)); n > longest; n-- {
			if bytes.HasPrefix(v, text[len(text)-n:]) {
				longest = n
			}
		}
	}
	return longest
}

// Head is a text whose end was cut off: also what a value begins with is covered
// where the text ends with it.
func (r *Redactor) Head(text string) string {
	if r == nil {
		return text
	}
	out := []byte(r.Text(text))
	if n := r.begun([]byte(text)); n >= MinLength/2 {
		stars(out[len(out)-n:])
	}
	return string(out)
}

// Tail is the end of a stream whose beginning is elsewhere: also what a value
// ends with is covered where the text begins with it.
func (r *Redactor) Tail(text []byte) []byte {
	if r == nil || len(text) == 0 {
		return text
	}
	out := bytes.Clone(text)
	r.cover(out, text)
	for _, v := range r.values {
		for n := min(len(v)-1, len(text)); n >= MinLength/2; n-- {
			if bytes.HasSuffix(v, text[:n]) {
				stars(out[:n])
				break
			}
		}
	}
	return out
}

// Bytes is a piece of a file or stream without the values, nor with what of one it begins
// or ends with, or lies within: data itself where nothing is covered. Fewer bytes of a
// value than MinLength/2 are not distinguished from others.
func (r *Redactor) Bytes(data []byte) []byte {
	if r == nil || len(data) == 0 {
		return data
	}
	if len(data) >= MinLength/2 && slices.ContainsFunc(r.values, func(v []byte) bool { return bytes.Contains(v, data) }) {
		return bytes.Repeat([]byte("*"), len(data))
	}
	out := r.Tail(data)
	if n := r.begun(data); n >= MinLength/2 {
		stars(out[len(out)-n:])
	}
	if bytes.Equal(out, data) {
		return data
	}
	return out
}

// Swap is v, which marshals to JSON, with some texts in the place of others, whole or
// within longer ones. As with Value it may come back as JSON.
func Swap(v any, texts map[string]string) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return v
	}
	for old, text := range texts {
		raw = bytes.ReplaceAll(raw, []byte(old), []byte(text))
	}
	return typed(v, raw)
}

// Value is v, which marshals to JSON, without the values in its texts: v itself
// where there are none, else a value of its type made from the JSON, or the JSON
// where that can't be.
func (r *Redactor) Value(v any) any {
	raw, err := json.Marshal(v)
	if err != nil || !r.In(raw) {
		return v
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if dec.Decode(&tree) != nil {
		return v
	}
	if raw, err = json.Marshal(r.tree(tree)); err != nil {
		return v
	}
	return typed(v, raw)
}

// typed is a value of v's type made from JSON, or the JSON where that can't be.
func typed(v any, raw []byte) any {
	out := reflect.New(reflect.TypeOf(v))
	if json.Unmarshal(raw, out.Interface()) != nil {
		return json.RawMessage(raw)
	}
	return out.Elem().Interface()
}

func (r *Redactor) tree(v any) any {
	switch v := v.(type) {
	case string:
		return r.Text(v)
	case []any:
		for i := range v {
			v[i] = r.tree(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[r.Text(key)] = r.tree(value)
		}
		return out
	}
	return v
}
