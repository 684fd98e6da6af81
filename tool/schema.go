package tool

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf describes T, with the bounds, defaults and enumerations of its tags
// and without the "null" alternatives that some MCP hosts refuse. nulls keeps
// them where a result has a null: in pointers that are always there.
func schemaOf[T any](nulls bool) *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("tool: describe %T: %v", *new(T), err))
	}
	refine(schema, reflect.TypeFor[T](), nulls)
	return schema
}

func refine(s *jsonschema.Schema, t reflect.Type, nulls bool) {
	dropNull(s)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[Object]() {
		*s = jsonschema.Schema{Description: s.Description, Type: "object", AdditionalProperties: &jsonschema.Schema{}}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		for _, f := range fieldsOf(t) {
			if prop := s.Properties[f.name]; prop != nil {
				refine(prop, f.typ, nulls)
				if nulls && f.required && f.typ.Kind() == reflect.Pointer {
					orNull(prop)
				}
				f.describe(prop)
			}
		}
	case reflect.Slice, reflect.Array:
		if s.Items != nil {
			refine(s.Items, t.Elem(), nulls)
		}
	case reflect.Map:
		if s.AdditionalProperties != nil {
			refine(s.AdditionalProperties, t.Elem(), nulls)
		}
	}
}

// Object is a JSON object as it is, in its order, of whatever members; nil is none. Its
// schema says that much: some MCP hosts refuse one that says nothing.
type Object json.RawMessage

// MarshalJSON implements [json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Object) UnmarshalJSON(raw []byte) error { return (*json.RawMessage)(o).UnmarshalJSON(raw) }

// orNull allows null in the form that most hosts take: no list of types.
func orNull(s *jsonschema.Schema) {
	value := *s
	value.Description = ""
	*s = jsonschema.Schema{Description: s.Description, AnyOf: []*jsonschema.Schema{{Type: "null"}, &value}}
}

func dropNull(s *jsonschema.Schema) {
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
}

func (f field) describe(s *jsonschema.Schema) {
	if f.def != "" {
		s.Default = json.RawMessage(f.defaultJSON())
	}
	if f.min != nil {
		s.Minimum = f.min
	}
	if f.max != nil {
		s.Maximum = f.max
	}
	for _, v := range f.enum {
		s.Enum = append(s.Enum, v)
	}
}

// field is one parameter as its struct tags describe it.
type field struct {
	index    []int
	typ      reflect.Type
	name     string
	alias    string // taken for name
	hint     string // behind the error that the value has another type
	required bool
	def      string
	min, max *float64
	enum     []string
}

// known keeps what fieldsOf has read: a call's arguments are decoded often.
var known sync.Map // reflect.Type -> []field

func fieldsOf(t reflect.Type) []field {
	if fields, ok := known.Load(t); ok {
		return fields.([]field)
	}
	fields := readFields(t)
	known.Store(t, fields)
	return fields
}

func readFields(t reflect.Type) []field {
	var fields []field
	for _, sf := range reflect.VisibleFields(t) {
		if !sf.IsExported() || sf.Anonymous {
			continue
		}
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			name = sf.Name
		}
		f := field{
			index: sf.Index, typ: sf.Type, name: name, alias: sf.Tag.Get("alias"), hint: sf.Tag.Get("hint"), def: sf.Tag.Get("default"),
			required: !strings.Contains(opts, "omit"),
			min:      bound(sf, "min"), max: bound(sf, "max"),
		}
		if values := sf.Tag.Get("enum"); values != "" {
			f.enum = strings.Split(values, "|")
		}
		fields = append(fields, f)
	}
	return fields
}

func bound(sf reflect.StructField, tag string) *float64 {
	text := sf.Tag.Get(tag)
	if text == "" {
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprintf("tool: field %s: %s:%q is no number", sf.Name, tag, text))
	}
	return &v
}

// defaultJSON is the default tag as JSON: strings are written bare in the tag.
func (f field) defaultJSON() string {
	if f.typ.Kind() == reflect.String {
		return strconv.Quote(f.def)
	}
	return f.def
}
