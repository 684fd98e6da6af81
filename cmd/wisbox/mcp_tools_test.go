package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox"
)

func TestEachToolIsInOneGroup(t *testing.T) {
	in := map[string]int{}
	for _, g := range toolGroups {
		for _, name := range g.tools {
			in[name]++
		}
	}
	for _, one := range wisbox.ToolSet().Tools() {
		assert.Equal(t, 1, in[one.Name], one.Name)
	}
	assert.False(t, slices.Contains(groupNames(), ""))
}
