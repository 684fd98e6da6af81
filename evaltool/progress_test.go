package evaltool_test

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

// chatty is an engine that produces parts.
type chatty struct{ parts []evaltool.Part }

func (c chatty) Guidance() string { return "" }

func (c chatty) Evaluate(_ context.Context, req evaltool.Request) (evaltool.Response, error) {
	for _, p := range c.parts {
		req.Feed.Put(p)
	}
	return evaltool.Response{Status: evaltool.StatusExited, Fed: true}, nil
}

func TestWhoAsksForProgressIsToldTheNewestOutput(t *testing.T) {
	e, err := evaltool.New(&evaltool.Options{Files: memory{}, Container: chatty{[]evaltool.Part{
		{Count: 1}, {Stdout: "a\n"}, {Stderr: "b\n"}, {Shown: &evaltool.Object{Text: "figure"}}, {Shown: &evaltool.Object{Main: true, Text: "value"}},
		{Stdout: strings.Repeat("é", 3000)},
	}}})
	require.NoError(t, err)
	var said []string
	ctx := tool.WithProgress(t.Context(), func(text string) { said = append(said, text) })
	_, err = e.Evaluate(ctx, evaltool.Params{Code: "x"})
	require.NoError(t, err)
	require.Len(t, said, 4)
	assert.Equal(t, []string{"a\n", "a\nb\n", "a\nb\nfigure\n"}, said[:3])
	assert.Equal(t, 2000, utf8.RuneCountInString(said[3]))
	_, err = e.Evaluate(t.Context(), evaltool.Params{Code: "x"})
	assert.NoError(t, err, "nobody asked")
}
