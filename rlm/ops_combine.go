package rlm

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// combineArgs are the arguments of combine. Inputs is the name of a binding or a
// list of names; a JSON array in the only one is taken as its items.
type combineArgs struct {
	Inputs   any    `json:"inputs"`
	Strategy string `json:"strategy" enum:"concat|sum|vote"`
}

func (a combineArgs) reads() []string {
	names, _ := namesOf(a.Inputs)
	return names
}

func (a combineArgs) apply(texts []*Text) (string, error) {
	if _, ok := namesOf(a.Inputs); !ok {
		return "", tool.Errorf(tool.Invalid, "inputs must be the name of a binding or a list of names").In("inputs")
	}
	values := valuesOf(texts)
	switch a.Strategy {
	case "sum":
		return sum(values)
	case "vote":
		return vote(values)
	}
	return strings.Join(values, "\n"), nil
}

// namesOf reads a name or a list of names.
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

func valuesOf(texts []*Text) []string {
	if len(texts) == 1 {
		if list, ok := items(texts[0].s); ok {
			return list
		}
	}
	values := make([]string, len(texts))
	for i, t := range texts {
		values[i] = t.s
	}
	return values
}

// A number is what people write as one. Its length and exponent are bounded so
// that a sum stays cheap.
const (
	maxNumber   = 400
	maxExponent = 400
)

var numberPattern = regexp.MustCompile(`^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,4}))?$`)

// sum adds decimals exactly: 0.1 and 0.2 are 0.3.
func sum(values []string) (string, error) {
	total := new(big.Rat)
	for i, value := range values {
		number, ok := parseNumber(strings.TrimFunc(value, isPythonSpace))
		if !ok {
			return "", tool.Errorf(tool.Invalid, "inputs: value %d of %d is no number, so there is no sum; grep or eval may pick the numbers out first", i+1, len(values)).In("inputs")
		}
		total.Add(total, number)
	}
	digits, _ := total.FloatPrec()
	return total.FloatString(digits), nil
}

func parseNumber(s string) (*big.Rat, bool) {
	if len(s) > maxNumber {
		return nil, false
	}
	m := numberPattern.FindStringSubmatch(s)
	if m == nil {
		return nil, false
	}
	if exponent, _ := strconv.Atoi(m[1]); exponent > maxExponent || exponent < -maxExponent {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// vote is the most frequent value, of several the one seen first.
func vote(values []string) (string, error) {
	if len(values) == 0 {
		return "", tool.Errorf(tool.Invalid, "inputs is empty; there is nothing to vote on").In("inputs")
	}
	counts := make(map[string]int, len(values))
	for _, value := range values {
		counts[value]++
	}
	best := values[0]
	for _, value := range values {
		if counts[value] > counts[best] {
			best = value
		}
	}
	return best, nil
}
