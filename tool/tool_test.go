package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

type item struct {
	Path string `json:"path"`
}

type params struct {
	Name    string            `json:"name" jsonschema:"who"`
	Count   int               `json:"count,omitempty" default:"7" min:"0" max:"10"`
	Seconds *float64          `json:"seconds,omitempty"`
	Mode    string            `json:"mode,omitempty" default:"create" enum:"create|append"`
	Items   []item            `json:"items,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Flag    bool              `json:"flag,omitempty"`
}

type answer struct {
	Got params `json:"got"`
}

func (a answer) Failed() bool { return a.Got.Flag }

func echo() tool.Tool {
	return tool.New(tool.Spec{Name: "echo"}, func(_ context.Context, p params) (answer, error) { return answer{p}, nil })
}

func TestDefaultsFillAbsentFields(t *testing.T) {
	res, err := echo().Call(context.Background(), json.RawMessage(`{"name":"x"}`))
	require.NoError(t, err)
	got := res.Value.(answer).Got
	assert.Equal(t, 7, got.Count)
	assert.Equal(t, "create", got.Mode)
	assert.Nil(t, got.Seconds)
	assert.NotEmpty(t, res.Text)
	assert.False(t, res.Failed)
}

func TestIntegersMayHaveAZeroFraction(t *testing.T) {
	res, err := echo().Call(context.Background(), json.RawMessage(`{"name":"x","count":3.0,"seconds":2.5,"flag":true}`))
	require.NoError(t, err)
	assert.Equal(t, 3, res.Value.(answer).Got.Count)
	assert.True(t, res.Failed)
}

func TestBadArgumentsNameTheField(t *testing.T) {
	for _, c := range []struct{ name, args, field, says string }{
		{"unknown", `{"name":"x","shell":"zsh"}`, "shell", "unknown parameter"},
		{"case counts", `{"Name":"x"}`, "Name", "unknown parameter"},
		{"missing", `{}`, "name", "required"},
		{"type", `{"name":["a"]}`, "name", "a string, not a list"},
		{"null", `{"name":null}`, "name", "null"},
		{"null of an optional one", `{"name":"x","seconds":null}`, "seconds", "null"},
		{"number as text", `{"name":"x","seconds":"30"}`, "seconds", "a number, not a string"},
		{"fraction", `{"name":"x","count":1.5}`, "count", "an integer"},
		{"huge", `{"name":"x","count":1e300}`, "count", "an integer"},
		{"below", `{"name":"x","count":-1}`, "count", "at least 0"},
		{"above", `{"name":"x","count":11}`, "count", "at most 10"},
		{"enum", `{"name":"x","mode":"w"}`, "mode", "create, append"},
		{"nested unknown", `{"name":"x","items":[{"path":"a","b":1}]}`, "items[0].b", "unknown parameter"},
		{"nested missing", `{"name":"x","items":[{"path":"a"},{}]}`, "items[1].path", "required"},
		{"map value", `{"name":"x","env":{"A":1}}`, "env.A", "a string, not a number"},
		{"twice", `{"name":"x","name":"y"}`, "name", "twice"},
		{"no object", `[1]`, "", "one JSON object"},
		{"two objects", `{"name":"x"} {}`, "", "one JSON object"},
		{"cut", `{"name":"x"`, "", "one JSON object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := echo().Call(context.Background(), json.RawMessage(c.args))
			var e *tool.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tool.Invalid, e.Kind)
			assert.Equal(t, c.field, e.Field)
			assert.Contains(t, e.Message, c.says)
		})
	}
}

// TestTextThatIsNotUnicodeIsRefused, since package json would replace it by U+FFFD without a word.
func TestTextThatIsNotUnicodeIsRefused(t *testing.T) {
	for _, c := range []struct{ name, args, field string }{
		{"half of a pair", `{"name":"a\ud800b"}`, "name"},
		{"the other half", `{"name":"\udc00"}`, "name"},
		{"halves in the wrong order", `{"name":"\udc00\ud800"}`, "name"},
		{"half before another escape", `{"name":"\ud83d\n"}`, "name"},
		{"half after a pair", `{"name":"\ud83d\ude00\ud83d"}`, "name"},
		{"bytes", "{\"name\":\"caf\xe9\"}", "name"},
		{"in a list", `{"name":"x","items":[{"path":"\ud800"}]}`, "items[0].path"},
		{"in a map", `{"name":"x","env":{"A":"\ud800"}}`, "env.A"},
		{"as a name", `{"name":"x","env":{"\ud800":"1"}}`, "env"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := echo().Call(context.Background(), json.RawMessage(c.args))
			var e *tool.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tool.Invalid, e.Kind)
			assert.Equal(t, c.field, e.Field)
		})
	}
	for text, want := range map[string]string{
		`\ud83d\ude00`: "😀", `\\ud800`: `\ud800`, `\ufffd`: "\ufffd", "\ufffd": "\ufffd", `\u00e9\\`: `é\`, `a\/\"`: `a/"`,
	} {
		res, err := echo().Call(context.Background(), json.RawMessage(`{"name":"`+text+`"}`))
		require.NoError(t, err, text)
		assert.Equal(t, want, res.Value.(answer).Got.Name, text)
	}
}

func TestOversizedArgumentsAreRefusedUnread(t *testing.T) {
	_, err := echo().Call(context.Background(), json.RawMessage(`{"name":"`+strings.Repeat("x", tool.MaxArguments)+`"}`))
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
}

func TestSchemasCarryTheTags(t *testing.T) {
	raw, err := json.Marshal(echo().Input)
	require.NoError(t, err)
	text := string(raw)
	assert.Contains(t, text, `"default":7`)
	assert.Contains(t, text, `"minimum":0`)
	assert.Contains(t, text, `"enum":["create","append"]`)
	assert.Contains(t, text, `"description":"who"`)
	assert.Contains(t, text, `"required":["name"]`)
	assert.NotContains(t, text, `"null"`)
}

func TestResultsMayHaveANullWhereTheyAlwaysHaveAField(t *testing.T) {
	type result struct {
		Value *string `json:"value"`
		Line  *int    `json:"line,omitempty"`
	}
	maybe := tool.New(tool.Spec{Name: "maybe"}, func(context.Context, struct{}) (result, error) { return result{}, nil })
	raw, err := json.Marshal(maybe.Output.Properties["value"])
	require.NoError(t, err)
	assert.JSONEq(t, `{"anyOf":[{"type":"null"},{"type":"string"}]}`, string(raw))
	assert.Equal(t, "integer", maybe.Output.Properties["line"].Type)
}

func TestForeignErrorsBecomeInternalAndHideTheirText(t *testing.T) {
	secret := errors.New("open /root/.ssh/id_rsa")
	boom := tool.New(tool.Spec{Name: "boom"}, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, secret })
	_, err := boom.Call(context.Background(), nil)
	assert.Equal(t, tool.Internal, tool.KindOf(err))
	assert.NotContains(t, err.Error(), "ssh")
	assert.ErrorIs(t, err, secret)
}

func TestContextEndsHaveTheirKinds(t *testing.T) {
	assert.Equal(t, tool.Timeout, tool.KindOf(context.DeadlineExceeded))
	assert.Equal(t, tool.Closed, tool.KindOf(context.Canceled))
	assert.Equal(t, tool.Kind(""), tool.KindOf(nil))
}

func TestUnknownToolsListTheKnown(t *testing.T) {
	_, err := tool.NewSet(echo()).Call(context.Background(), "ehco", nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	assert.ErrorContains(t, err, "echo")
}

func FuzzDecodeNeverPanicsAndNeverGuesses(f *testing.F) {
	f.Add([]byte(`{"name":"x","items":[{"path":"a"}]}`))
	f.Add([]byte(`{"name":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p params
		if err := tool.Decode(raw, &p); err != nil {
			require.NotEmpty(t, tool.AsError(err).Message)
			return
		}
		require.GreaterOrEqual(t, p.Count, 0)
		require.Contains(t, []string{"create", "append"}, p.Mode)
	})
}
