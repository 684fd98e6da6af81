// Package settings reads what the fields of a struct declare about settings, in their tags: the name, which is that in
// JSON unless there is a tag "setting"; the unit, which may be bytes; and for an audience, such as tenants, the rule by
// which the audience's value joins the one there is. A field without the audience's tag isn't the audience's.
//
// A field that is itself a struct with such fields, such as limits, stands for all of them.
package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/go-units"
)

// Field is one setting of an audience.
type Field struct {
	Name string // such as memory
	Path string // with the name of the struct that it is in, such as limits.memory
	Rule string

	bytes bool
	index []int
}

// Of returns the settings of an audience in a struct of type T, in the order of the fields.
func Of[T any](audience string) []Field { return fields(reflect.TypeFor[T](), audience, "", "", nil) }

func fields(t reflect.Type, audience, path, inherited string, index []int) (all []Field) {
	for i := range t.NumField() {
		f := t.Field(i)
		rule, ok := f.Tag.Lookup(audience)
		if !ok {
			rule = inherited
		}
		if rule == "" || rule == "-" {
			continue
		}
		at := slices.Concat(index, []int{i})
		if f.Type.Kind() == reflect.Struct {
			all = append(all, fields(f.Type, audience, path+nameOf(f)+".", rule, at)...)
			continue
		}
		all = append(all, Field{Name: nameOf(f), Path: path + nameOf(f), Rule: rule, bytes: f.Tag.Get("unit") == "bytes", index: at})
	}
	return all
}

func nameOf(f reflect.StructField) string {
	if name, ok := f.Tag.Lookup("setting"); ok {
		return name
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Keys returns the keys in JSON of an audience's settings in a struct of type T, also of those in embedded structs.
func Keys[T any](audience string) []string { return keys(reflect.TypeFor[T](), audience) }

func keys(t reflect.Type, audience string) (all []string) {
	for f := range t.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch rule := f.Tag.Get(audience); {
		case f.Anonymous && key == "":
			all = append(all, keys(f.Type, audience)...)
		case rule != "" && rule != "-" && key != "-":
			all = append(all, key)
		}
	}
	return all
}

// Keep returns o with only the settings of an audience that have a key in JSON.
func Keep[T any](o T, audience string) (out T) {
	from, to := reflect.ValueOf(&o).Elem(), reflect.ValueOf(&out).Elem()
	for i := range from.NumField() {
		tag := from.Type().Field(i).Tag
		if rule := tag.Get(audience); rule != "" && rule != "-" && tag.Get("json") != "-" {
			to.Field(i).Set(from.Field(i))
		}
	}
	return out
}

// In returns the setting's value in the struct that o points to.
func (f Field) In(o any) reflect.Value { return reflect.ValueOf(o).Elem().FieldByIndex(f.index) }

// Text returns a value of the setting for a person: bytes in the largest unit that is exact.
func (f Field) Text(v reflect.Value) string {
	if f.bytes {
		return Bytes(v.Int())
	}
	if v.Kind() == reflect.Float64 {
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

// Bytes writes a size in the largest unit that is exact.
func Bytes(n int64) string {
	s := units.BytesSize(float64(n))
	if read, err := units.RAMInBytes(s); err == nil && read == n {
		return s
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// Less compares two numbers or durations of the same type.
func Less(a, b reflect.Value) bool {
	if a.CanInt() {
		return a.Int() < b.Int()
	}
	return a.Float() < b.Float()
}
