package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/clip"
)

// Decode decodes a call's arguments into params, a pointer to a struct. It is strict: raw
// must be one JSON object, without unknown, repeated or null fields, with all required fields,
// and with values of the right types and within their bounds and enumerations. Absent fields
// get their default. Empty input counts as an empty object. The error is of kind invalid and
// names the field.
func Decode(raw json.RawMessage, params any) error {
	if len(raw) > MaxArguments {
		return Errorf(TooLarge, "the arguments have %d bytes; the maximum is %d", len(raw), MaxArguments)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if err := decodeStruct(raw, reflect.ValueOf(params).Elem(), ""); err != nil {
		return err
	}
	return nil
}

func decodeStruct(raw json.RawMessage, dst reflect.Value, path string) *Error {
	members, err := objectMembers(raw, path)
	if err != nil {
		return err
	}
	fields := fieldsOf(dst.Type())
	if err := renameAliases(members, fields, path); err != nil {
		return err
	}
	for name := range members {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return Errorf(Invalid, "unknown parameter %s; the parameters are %s", join(path, name), fieldNames(fields)).In(join(path, name))
		}
	}
	for _, f := range fields {
		value, given := members[f.name]
		if err := f.decode(value, given, dst.FieldByIndex(f.index), join(path, f.name)); err != nil {
			return err
		}
	}
	return nil
}

// renameAliases replaces aliases by the names that they stand for.
func renameAliases(members map[string]json.RawMessage, fields []field, path string) *Error {
	for _, f := range fields {
		value, given := members[f.alias]
		if f.alias == "" || !given {
			continue
		}
		if own, both := members[f.name]; both && !sameJSON(own, value) {
			return Errorf(Invalid, "%s and %s differ; give %s alone", join(path, f.name), join(path, f.alias), f.name).In(join(path, f.name))
		}
		delete(members, f.alias)
		members[f.name] = value
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func (f field) decode(raw json.RawMessage, given bool, dst reflect.Value, path string) *Error {
	if !given {
		if f.required {
			return Errorf(Invalid, "%s is missing; it is required", path).In(path)
		}
		if f.def == "" {
			return nil
		}
		raw = json.RawMessage(f.defaultJSON())
	}
	if err := decodeValue(raw, dst, path); err != nil {
		if f.hint != "" && err.Field == path {
			err.Message += "; " + f.hint
		}
		return err
	}
	return f.check(dst, path)
}

func decodeValue(raw json.RawMessage, dst reflect.Value, path string) *Error {
	if string(bytes.TrimSpace(raw)) == "null" {
		return Errorf(Invalid, "%s is null; give it %s or leave it out", path, want(dst.Type())).In(path)
	}
	switch t := dst.Type(); t.Kind() {
	case reflect.Pointer:
		v := reflect.New(t.Elem())
		if err := decodeValue(raw, v.Elem(), path); err != nil {
			return err
		}
		dst.Set(v)
		return nil
	case reflect.Struct:
		return decodeStruct(raw, dst, path)
	case reflect.Slice:
		if t != reflect.TypeFor[json.RawMessage]() {
			return decodeSlice(raw, dst, path)
		}
	case reflect.Map:
		return decodeMap(raw, dst, path)
	case reflect.Int, reflect.Int64, reflect.Int32:
		return decodeInt(raw, dst, path)
	}
	if err := json.Unmarshal(raw, dst.Addr().Interface()); err != nil {
		return wrongType(raw, dst.Type(), path)
	}
	if !isText(raw) {
		return Errorf(Invalid, "%s isn't Unicode text: it has half of a surrogate pair, or bytes that aren't UTF-8; send the whole character", path).In(path)
	}
	return nil
}

// isText reports whether the strings of a JSON value are Unicode text. Package json replaces
// everything else by U+FFFD without an error.
func isText(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if i++; raw[i] != 'u' {
			continue
		}
		r := escaped(raw[i-1:])
		if utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escaped(raw[i+5:])) == utf8.RuneError {
				return false
			}
			i += 6
		}
		i += 4
	}
	return true
}

// escaped returns the code unit of an escape such as \u00e9, or 0 if b doesn't begin with one.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(r)
}

func decodeSlice(raw json.RawMessage, dst reflect.Value, path string) *Error {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return wrongType(raw, dst.Type(), path)
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if err := decodeValue(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	dst.Set(out)
	return nil
}

func decodeMap(raw json.RawMessage, dst reflect.Value, path string) *Error {
	members, err := objectMembers(raw, path)
	if err != nil {
		return err
	}
	out := reflect.MakeMapWithSize(dst.Type(), len(members))
	for name, member := range members {
		v := reflect.New(dst.Type().Elem()).Elem()
		if err := decodeValue(member, v, join(path, name)); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(name), v)
	}
	dst.Set(out)
	return nil
}

// decodeInt accepts integers as JSON Schema defines them: both 3 and 3.0.
func decodeInt(raw json.RawMessage, dst reflect.Value, path string) *Error {
	var i int64
	if json.Unmarshal(raw, &i) == nil {
		dst.SetInt(i)
		return nil
	}
	var v float64
	if json.Unmarshal(raw, &v) != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return wrongType(raw, dst.Type(), path)
	}
	dst.SetInt(int64(v))
	return nil
}

func (f field) check(v reflect.Value, path string) *Error {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if f.enum != nil && !slices.Contains(f.enum, v.String()) {
		return Errorf(Invalid, "%s is %q; it must be one of %s", path, clip.Words(v.String()), strings.Join(f.enum, ", ")).In(path)
	}
	n, isNumber := asFloat(v)
	if !isNumber {
		return nil
	}
	if f.min != nil && n < *f.min {
		return Errorf(Invalid, "%s is %s; it must be at least %s", path, plain(n), plain(*f.min)).In(path)
	}
	if f.max != nil && n > *f.max {
		return Errorf(Invalid, "%s is %s; it must be at most %s", path, plain(n), plain(*f.max)).In(path)
	}
	return nil
}

// plain formats a number in plain digits: 1000000, not 1e+06.
func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func asFloat(v reflect.Value) (float64, bool) {
	switch {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanFloat():
		return v.Float(), true
	}
	return 0, false
}

// objectMembers splits one JSON object without interpreting its values. It refuses a repeated
// name, of which two readers could each take a different value.
func objectMembers(raw json.RawMessage, path string) (map[string]json.RawMessage, *Error) {
	notObject := func() *Error { return wrongType(raw, reflect.TypeFor[map[string]any](), path) }
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, notObject()
	}
	members := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, notObject()
		}
		name := key.(string)
		if strings.ContainsRune(name, utf8.RuneError) { // or what package json made one of
			return nil, Errorf(Invalid, "%s isn't the name of a parameter", join(path, name)).In(path)
		}
		if _, twice := members[name]; twice {
			return nil, Errorf(Invalid, "%s is given twice", join(path, name)).In(join(path, name))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, notObject()
		}
		members[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, notObject()
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, notObject()
	}
	return members, nil
}

func wrongType(raw json.RawMessage, t reflect.Type, path string) *Error {
	if path == "" {
		return Errorf(Invalid, "the arguments must be one JSON object")
	}
	return Errorf(Invalid, "%s must be %s, not %s", path, want(t), found(raw)).In(path)
}

func want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return want(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64, reflect.Float32:
		return "a number"
	case reflect.Int, reflect.Int64, reflect.Int32:
		return "an integer"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

func found(raw json.RawMessage) string {
	switch trimmed := bytes.TrimSpace(raw); {
	case len(trimmed) == 0:
		return "nothing"
	case trimmed[0] == '"':
		return "a string"
	case trimmed[0] == '{':
		return "an object"
	case trimmed[0] == '[':
		return "a list"
	case trimmed[0] == 't', trimmed[0] == 'f':
		return "true or false"
	}
	return "a number"
}

func fieldNames(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func join(path, name string) string {
	name = clip.Words(name)
	if path == "" {
		return name
	}
	return path + "." + name
}
