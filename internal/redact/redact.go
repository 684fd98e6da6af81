// Package redact replaces secret values with stars in texts for models, people and logs. It finds a
// value both as it is and as JSON encodes it, in texts, in values that become JSON, and in streams,
// even across the borders of chunks.
//
// It guards only against accidents: a program that encodes its output gets around it. Only a program
// without the secret can't leak it.
//
// A value keeps its length, so that sizes, offsets and columns stay right.
package redact

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
)

// MinLength is the minimum length of a value, or of a line of it, in bytes: shorter ones occur by
// chance.
const MinLength = 8

// Redactor replaces certain values. It is immutable: its methods may be called from many goroutines
// at once. The nil Redactor replaces nothing.
type Redactor struct{ values [][]byte }

// New returns a Redactor for the values; nil if there is nothing to find. In a value with several
// lines, each line counts, because output is often shown by line.
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

// With returns a Redactor for more values; r doesn't change.
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

// In reports whether a text contains any of the values.
func (r *Redactor) In(text []byte) bool {
	return r != nil && slices.ContainsFunc(r.values, func(v []byte) bool { return bytes.Contains(text, v) })
}

// Text returns a text with the values redacted.
func (r *Redactor) Text(text string) string {
	if r == nil || !r.In([]byte(text)) {
		return text
	}
	out := []byte(text)
	r.cover(out, []byte(text))
	return string(out)
}

// cover writes stars to out, which is as long as text, over every value of text, and returns the
// places as [from, to).
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

// begun returns the length of the longest suffix of text that is a prefix of some value.
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

// Head returns the redacted beginning of a text whose end was cut off: it also covers the beginning
// of a value at the end of the text.
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

// Tail returns the redacted end of a stream: it also covers the end of a value at the beginning of
// the text.
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

// Bytes returns a piece of a file or stream with the values redacted, including parts of a value at
// its beginning and its end, or all of the piece if it is inside a value. It returns data itself if
// there is nothing to cover. Parts of fewer than MinLength/2 bytes aren't covered.
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

// Swap returns v, which must marshal to JSON, with some texts replaced by others, whole or within
// longer ones. Like Value, it may return JSON.
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

// Value returns v, which must marshal to JSON, with the values in its texts redacted. It returns v
// itself if there are none, otherwise a value of v's type decoded from the JSON, or the JSON if
// that isn't possible.
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

// typed returns a value of v's type decoded from JSON, or the JSON if that isn't possible.
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
