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

// described caches schemas: a session has forty tools, and making their schemas would take
// longer than the rest of opening a session.
var described sync.Map // of descriptions, to *jsonschema.Schema

type description struct {
	of    reflect.Type
	nulls bool
}

// schemaOf returns the schema of T, with the bounds, defaults and enumerations of its tags and
// without the "null" alternatives that some MCP hosts refuse. nulls keeps these for results
// that have nulls: pointers that are always present. It returns the same schema each time.
func schemaOf[T any](nulls bool) *jsonschema.Schema {
	key := description{reflect.TypeFor[T](), nulls}
	if known, ok := described.Load(key); ok {
		return known.(*jsonschema.Schema)
	}
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("tool: describe %T: %v", *new(T), err))
	}
	refine(schema, key.of, nulls)
	known, _ := described.LoadOrStore(key, schema)
	return known.(*jsonschema.Schema)
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

// Object is any JSON object, with its members in their order; nil means none. Its schema has
// the type, since some MCP hosts refuse an empty schema.
type Object json.RawMessage

// MarshalJSON implements [json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Object) UnmarshalJSON(raw []byte) error { return (*json.RawMessage)(o).UnmarshalJSON(raw) }

// orNull allows null in the form that most hosts accept, which is not a list of types.
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

// field is a parameter as described by its struct tags.
type field struct {
	index    []int
	typ      reflect.Type
	name     string
	alias    string // another accepted name
	hint     string // appended to the error for a value of a wrong type
	required bool
	def      string
	min, max *float64
	enum     []string
}

// known caches the results of fieldsOf, since arguments are decoded often.
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
		panic(fmt.Sprintf("tool: field %s: %s:%q is not a number", sf.Name, tag, text))
	}
	return &v
}

// defaultJSON returns the default tag as JSON: the tag has strings without quotes.
func (f field) defaultJSON() string {
	if f.typ.Kind() == reflect.String {
		return strconv.Quote(f.def)
	}
	return f.def
}
