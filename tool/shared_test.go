package tool_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/tool"
)

// TestToolsOfTheSameTypesShareTheirSchemas: a session with its forty tools is opened at once.
func TestToolsOfTheSameTypesShareTheirSchemas(t *testing.T) {
	type params struct {
		Text string `json:"text"`
	}
	type result struct {
		Text *string `json:"text"`
	}
	make := func(name string) tool.Tool {
		return tool.New(tool.Spec{Name: name}, func(context.Context, params) (result, error) { return result{}, nil })
	}
	one, other := make("one"), make("other")
	assert.Same(t, one.Input, other.Input)
	assert.Same(t, one.Output, other.Output)
	back := tool.New(tool.Spec{Name: "back"}, func(context.Context, result) (params, error) { return params{}, nil })
	assert.NotEqual(t, one.Output, back.Input, "a result that has a null is no parameter that has one")
}
