package conformance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var index = regexp.MustCompile(`^-?\d+$`)

func lookUp(body any, text, path string) any {
	if path == "text" {
		return text
	}
	return get(body, path)
}

// get follows a dotted path: names, list indexes, negative ones from the end,
// "*" for all items of a list.
func get(value any, path string) any { return follow(value, strings.Split(path, ".")) }

func follow(value any, parts []string) any {
	if len(parts) == 0 {
		return value
	}
	if parts[0] == "*" {
		return followAll(value, parts[1:])
	}
	switch v := value.(type) {
	case *object:
		return followName(v, parts)
	case []any:
		if i, ok := position(parts[0], len(v)); ok {
			return follow(v[i], parts[1:])
		}
	}
	return missing{}
}

func followAll(value any, rest []string) any {
	list, ok := value.([]any)
	if !ok {
		return missing{}
	}
	all := make([]any, len(list))
	for i, item := range list {
		all[i] = follow(item, rest)
	}
	return all
}

// followName takes the longest name that fits: a name may itself hold dots.
func followName(o *object, parts []string) any {
	for n := len(parts); n > 0; n-- {
		if value, there := o.member[strings.Join(parts[:n], ".")]; there {
			return follow(value, parts[n:])
		}
	}
	return missing{}
}

func position(part string, n int) (int, bool) {
	if !index.MatchString(part) {
		return 0, false
	}
	i, err := strconv.Atoi(part)
	if err != nil || i < -n || i >= n {
		return 0, false
	}
	if i < 0 {
		i += n
	}
	return i, true
}

func show(value any) string {
	if value == (any)(missing{}) {
		return "nothing"
	}
	return clip(dump(value), 160)
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// String shows the answer in a few words, for the report of a failed case.
func (a Answer) String() string {
	switch {
	case a.Refused != nil:
		return "no start: " + clip(*a.Refused, 400)
	case a.Error != nil:
		return "error " + show(a.Error)
	case a.Failed:
		return "failed " + show(a.Result)
	}
	return fmt.Sprintf("ok %s", show(a.Result))
}
