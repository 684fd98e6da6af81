package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var placeholder = regexp.MustCompile(`\{\{([A-Z][A-Z0-9_]*)\}\}`)

// vars has the values of a case's placeholders.
type vars map[string]value

// fill replaces the placeholders of a text.
func (v vars) fill(text string) (string, error) {
	var unknown string
	filled := placeholder.ReplaceAllStringFunc(text, func(m string) string {
		known, ok := v[m[2:len(m)-2]]
		if !ok {
			unknown = m
		}
		if s, ok := textOf(known); ok {
			return s
		}
		return dump(known)
	})
	if unknown != "" {
		return "", fmt.Errorf("nothing is known of %s", unknown)
	}
	return filled, nil
}

// arguments returns the arguments of a call, with placeholders filled and repeats unrolled.
func (v vars) arguments(raw value) (value, error) {
	if len(raw) == 0 {
		return value("{}"), nil
	}
	filled, err := v.unroll(parsed(raw))
	if err != nil {
		return nil, err
	}
	return json.Marshal(filled)
}

func (v vars) unroll(arg any) (any, error) {
	var err error
	switch x := arg.(type) {
	case string:
		if m := placeholder.FindString(x); m != "" && m == x && v[m[2:len(m)-2]] != nil {
			return v[m[2:len(m)-2]], nil // a saved number that stands alone keeps its type
		}
		return v.fill(x)
	case []any:
		for i := range x {
			if x[i], err = v.unroll(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		if rep, ok := x["$rep"]; ok && len(x) == 1 {
			return v.repeat(rep)
		}
		out := make(map[string]any, len(x))
		for name, inner := range x {
			if name, err = v.fill(name); err != nil {
				return nil, err
			}
			if out[name], err = v.unroll(inner); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return arg, nil
}

// repeat returns the text of {"$rep": [unit, n, tail]}: n units and the tail.
func (v vars) repeat(spec any) (string, error) {
	list, _ := spec.([]any)
	if len(list) != 3 {
		return "", fmt.Errorf("$rep is %v; it must be [unit, n, tail]", spec)
	}
	unit, isText := list[0].(string)
	tail, tailIsText := list[2].(string)
	n, err := strconv.Atoi(fmt.Sprint(list[1]))
	if err != nil || n < 0 || !isText || !tailIsText {
		return "", fmt.Errorf("$rep is %v; it must be [unit, n, tail]", spec)
	}
	return v.fill(strings.Repeat(unit, n) + tail)
}
