package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var placeholder = regexp.MustCompile(`\{\{([A-Z][A-Z0-9_]*)\}\}`)

// vars holds what the placeholders of a case stand for.
type vars map[string]any

// fill replaces the placeholders of a text.
func (v vars) fill(text string) (string, error) {
	var unknown string
	filled := placeholder.ReplaceAllStringFunc(text, func(m string) string {
		value, ok := v[m[2:len(m)-2]]
		if !ok {
			unknown = m
			return m
		}
		if s, isText := value.(string); isText {
			return s
		}
		return dump(value)
	})
	if unknown != "" {
		return "", fmt.Errorf("nothing is known of %s", unknown)
	}
	return filled, nil
}

// with is v and one more name.
func (v vars) with(name string, value any) vars {
	more := make(vars, len(v)+1)
	for k, old := range v {
		more[k] = old
	}
	more[name] = value
	return more
}

// arguments are the arguments of a call: placeholders filled, repeats unrolled.
func (v vars) arguments(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("{}"), nil
	}
	value, err := parse(raw)
	if err != nil {
		return nil, err
	}
	if value, err = v.unroll(value); err != nil {
		return nil, err
	}
	return json.RawMessage(dump(value)), nil
}

func (v vars) unroll(value any) (any, error) {
	switch x := value.(type) {
	case string:
		return v.unrollText(x)
	case []any:
		out := make([]any, len(x))
		for i, item := range x {
			var err error
			if out[i], err = v.unroll(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *object:
		if rep, ok := x.member["$rep"]; ok && len(x.names) == 1 {
			return v.repeat(rep)
		}
		return v.unrollMembers(x)
	}
	return value, nil
}

// unrollText gives a saved number its own type where it stands alone.
func (v vars) unrollText(text string) (any, error) {
	if m := placeholder.FindString(text); m != "" && m == text {
		if value, ok := v[m[2:len(m)-2]]; ok {
			return value, nil
		}
	}
	return v.fill(text)
}

func (v vars) unrollMembers(o *object) (any, error) {
	out := newObject()
	for _, name := range o.names {
		filled, err := v.fill(name)
		if err != nil {
			return nil, err
		}
		value, err := v.unroll(o.member[name])
		if err != nil {
			return nil, err
		}
		out.set(filled, value)
	}
	return out, nil
}

// repeat is {"$rep": [unit, n, tail]}: n units and the tail.
func (v vars) repeat(spec any) (any, error) {
	list, ok := spec.([]any)
	if !ok || len(list) != 3 {
		return nil, fmt.Errorf("$rep is %s; it must be [unit, n, tail]", show(spec))
	}
	unit, isText := list[0].(string)
	count, isNumber := list[1].(number)
	tail, tailIsText := list[2].(string)
	n, err := strconv.Atoi(string(count))
	if !isText || !isNumber || !tailIsText || err != nil || n < 0 {
		return nil, fmt.Errorf("$rep is %s; it must be [unit, n, tail]", show(spec))
	}
	if unit, err = v.fill(unit); err != nil {
		return nil, err
	}
	if tail, err = v.fill(tail); err != nil {
		return nil, err
	}
	return strings.Repeat(unit, n) + tail, nil
}

// strictly decodes one JSON object and refuses fields that nobody reads.
func strictly(line []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

func marshalled(value any) (raw []byte, parsed any, err error) {
	if raw, err = json.Marshal(value); err != nil {
		return nil, nil, err
	}
	if parsed, err = parse(raw); err != nil {
		return raw, nil, err
	}
	if _, ok := parsed.(*object); !ok {
		return raw, nil, fmt.Errorf("it is %s", show(parsed))
	}
	return raw, parsed, nil
}
