package lisp

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestARecordKeepsTheNewestOfEachNameInTheirOrder(t *testing.T) {
	r := &record{}
	def := func(name, source string) definition {
		return definition{Operator: "DEFUN", Name: name, Package: "P", Source: source}
	}
	r.add([]definition{def("A", "1"), def("B", "1"), def("A", "2")})
	r.add([]definition{def("C", "1"), def("B", "22")})
	assert.Equal(t, []definition{def("A", "2"), def("C", "1"), def("B", "22")}, r.defs)
	total := 0
	for _, d := range r.defs {
		total += d.size()
	}
	assert.Equal(t, total, r.bytes)
}

// An archive's record may have as many definitions as fit into it: in quadratic time this took more than ten minutes.
func TestARecordOfVeryManyDefinitionsIsTakenAtOnce(t *testing.T) {
	defs := make([]definition, 150_000)
	for i := range defs {
		defs[i] = definition{Operator: "D", Name: strconv.Itoa(i)}
	}
	r := &record{}
	r.add(defs)
	assert.Len(t, r.defs, len(defs))
	assert.LessOrEqual(t, r.bytes, maxDefinitions)
}
