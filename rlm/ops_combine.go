package rlm

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// combineArgs are the arguments of combine. Inputs is the name of a binding or a list of
// names. If there is only one text and it is a JSON array, its items are the values.
type combineArgs struct {
	Inputs   any    `json:"inputs"`
	Strategy string `json:"strategy" enum:"concat|sum|vote"`
}

func (a combineArgs) reads() []string {
	names, _ := namesOf(a.Inputs)
	return names
}

func (a combineArgs) apply(texts []*Text, b *budget.Budget) (string, error) {
	if _, ok := namesOf(a.Inputs); !ok {
		return "", tool.Errorf(tool.Invalid, "inputs must be the name of a binding or a list of names").In("inputs")
	}
	values, err := valuesOf(texts, b)
	if err != nil {
		return "", err
	}
	switch a.Strategy {
	case "sum":
		return sum(values, b)
	case "vote":
		return vote(values, b)
	}
	return concat(values, b)
}

// namesOf returns the names in a JSON value that is one name or a list of names.
func namesOf(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case []any:
		names := make([]string, len(v))
		for i, item := range v {
			name, ok := item.(string)
			if !ok {
				return nil, false
			}
			names[i] = name
		}
		return names, true
	}
	return nil, false
}

// concat joins values by newlines. It computes the size first, so that it refuses many names of
// one large text before it joins anything.
func concat(v values, b *budget.Budget) (string, error) {
	if v.array == "" && v.count == 1 {
		return v.texts[0].s, nil
	}
	size := 0
	count := func(value string) error {
		size += len(value) + len("\n")
		return b.Out(len(value) + len("\n"))
	}
	if err := v.each(b, count); err != nil || size == 0 {
		return "", err
	}
	buf := make([]byte, 0, size)
	err := v.each(b, func(value string) error {
		buf = append(append(buf, value...), '\n')
		return nil
	})
	return strings.TrimSuffix(text(buf), "\n"), err
}

// Bounds of a number in the usual notation. They keep a sum cheap.
const (
	maxNumber   = 400
	maxExponent = 400
)

var numberPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,4}))?$`)
})

// sum adds decimals exactly: 0.1 and 0.2 are 0.3.
func sum(v values, b *budget.Budget) (string, error) {
	total, at := new(big.Rat), 0
	err := v.each(b, func(value string) error {
		at++
		number, ok := parseNumber(strings.TrimFunc(value, isPythonSpace))
		if !ok {
			return tool.Errorf(tool.Invalid, "inputs: value %d of %d is not a number; extract the numbers first, with grep or eval", at, v.count).In("inputs")
		}
		total.Add(total, number)
		return nil
	})
	if err != nil {
		return "", err
	}
	digits, _ := total.FloatPrec()
	return total.FloatString(digits), nil
}

func parseNumber(s string) (*big.Rat, bool) {
	if len(s) > maxNumber {
		return nil, false
	}
	m := numberPattern().FindStringSubmatch(s)
	if m == nil {
		return nil, false
	}
	if exponent, _ := strconv.Atoi(m[1]); exponent > maxExponent || exponent < -maxExponent {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// tallySize is roughly the memory of one value in the map of votes, in bytes.
const tallySize = 64

// vote returns the most frequent value, or the first of several.
func vote(v values, b *budget.Budget) (string, error) {
	if v.count == 0 {
		return "", tool.Errorf(tool.Invalid, "inputs is empty; give at least one value to vote on").In("inputs")
	}
	type tally struct{ votes, seen int }
	tallies := map[string]*tally{}
	err := v.each(b, func(value string) error {
		if t, known := tallies[value]; known {
			t.votes++
			return nil
		}
		tallies[value] = &tally{1, len(tallies)}
		return b.Hold(tallySize + len(value))
	})
	if err != nil {
		return "", err
	}
	best, most := "", tally{}
	for value, t := range tallies {
		if t.votes > most.votes || t.votes == most.votes && t.seen < most.seen {
			best, most = value, *t
		}
	}
	return strings.Clone(best), b.Out(len(best))
}
