package rlm_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

func bound(pairs ...string) rlm.Bindings {
	b := rlm.Bindings{"context": rlm.NewText("")}
	for i := 0; i < len(pairs); i += 2 {
		b[pairs[i]] = rlm.NewText(pairs[i+1])
	}
	return b
}

func TestOperationsAnswerExactly(t *testing.T) {
	for _, c := range []struct{ name, op, args, input, want string }{
		{"slice of a range", "slice", `{"input":"t","start":0,"end":8}`, "line one\nline two", "line one"},
		{"slice without bounds", "slice", `{"input":"t"}`, "abc\ndef", "abc\ndef"},
		{"slice from the end", "slice", `{"input":"t","start":-3}`, "abcdef", "def"},
		{"slice to before the end", "slice", `{"input":"t","end":-3}`, "abcdef", "abc"},
		{"slice beyond both ends", "slice", `{"input":"t","start":-99,"end":99}`, "abc", "abc"},
		{"slice of the smallest start", "slice", `{"input":"t","start":-9223372036854775808}`, "abc", "abc"},
		{"slice of nothing", "slice", `{"input":"t","start":2,"end":1}`, "abc", ""},
		{"slice by code points", "slice", `{"input":"t","start":1,"end":-1}`, "é日本", "日"},
		{"grep", "grep", `{"input":"t","pattern":"line"}`, "line 1\nx\nline 2", "line 1\nline 2"},
		{"grep of nothing", "grep", `{"input":"t","pattern":"xyz"}`, "a\nb", ""},
		{"grep by a class", "grep", `{"input":"t","pattern":"\\d+"}`, "abc\n123\ndef\n456", "123\n456"},
		{"grep keeps all by an empty pattern", "grep", `{"input":"t","pattern":""}`, "a\n\nb\n", "a\n\nb\n"},
		{"grep ends lines at newlines only", "grep", `{"input":"t","pattern":"a$"}`, "a\r\nb", ""},
		{"grep anchors at lines", "grep", `{"input":"t","pattern":"\\Ab\\z"}`, "a\nb\nab", "b"},
		{"grep of empty lines", "grep", `{"input":"t","pattern":"^$"}`, "a\n\n\nb", "\n"},
		{"grep does not match a newline", "grep", `{"input":"t","pattern":"(?s)a.b|a\\sb|a[^x]b"}`, "a\nb\na b", "a b"},
		{"count of lines", "count", `{"input":"t","mode":"lines"}`, "a\nb\nc\nd\ne", "5"},
		{"count of nothing", "count", `{"input":"t"}`, "", "0"},
		{"count of blanks", "count", `{"input":"t"}`, " \n\t\n", "0"},
		{"count without the final newline", "count", `{"input":"t"}`, "a\nb\n", "2"},
		{"count of characters", "count", `{"input":"t","mode":"chars"}`, "é日😀", "3"},
		{"chunk into fewer", "chunk", `{"input":"t","n":6}`, "1\n2\n3\n4\n5\n6\n7\n8\n9", `["1\n2","3\n4","5\n6","7\n8","9"]`},
		{"chunk into one", "chunk", `{"input":"t","n":1}`, "a\nb", `["a\nb"]`},
		{"chunk keeps an empty last line", "chunk", `{"input":"t","n":2}`, "a\nb\n", `["a\nb",""]`},
		{"chunk into very many", "chunk", `{"input":"t","n":9007199254740992}`, "a\nb", `["a","b"]`},
		{"chunk of nothing", "chunk", `{"input":"t","n":3}`, "", `[""]`},
		{"split at lines", "split", `{"input":"t"}`, "a\nb\nc", `["a","b","c"]`},
		{"split at a delimiter", "split", `{"input":"t","delimiter":"||"}`, "a||b||c", `["a","b","c"]`},
		{"split takes no pattern", "split", `{"input":"t","delimiter":"."}`, "a.b", `["a","b"]`},
		{"split keeps characters readable", "split", `{"input":"t","delimiter":"日"}`, "é日<&>", `["é","<&>"]`},
		{"combine an array", "combine", `{"inputs":"t","strategy":"sum"}`, `["2","3"]`, "5"},
		{"combine an array in a list of one", "combine", `{"inputs":["t"],"strategy":"concat"}`, `["a",1,null]`, "a\n1\nnull"},
		{"combine a text that is not an array", "combine", `{"inputs":"t","strategy":"concat"}`, `[a`, "[a"},
		{"sum of decimals", "combine", `{"inputs":"t","strategy":"sum"}`, `["0.1", 0.2, " -4 ", "1e2"]`, "96.3"},
		{"sum of nothing", "combine", `{"inputs":"t","strategy":"sum"}`, `[]`, "0"},
		{"vote", "combine", `{"inputs":"t","strategy":"vote"}`, `["a","b","b"]`, "b"},
		{"vote of a tie", "combine", `{"inputs":"t","strategy":"vote"}`, `["b","a","a","b"]`, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := rlm.Apply(context.Background(), c.op, json.RawMessage(c.args), bound("t", c.input))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, op, args string
		kind           tool.Kind
		message        string
	}{
		{"unknown binding", "slice", `{"input":"no_such"}`, tool.NotFound, "no_such"},
		{"unknown argument", "slice", `{"from":1}`, tool.Invalid, "from"},
		{"no regular expression", "grep", `{"input":"t","pattern":"["}`, tool.Invalid, "pattern"},
		{"lookbehind", "grep", `{"input":"t","pattern":"(?<=a)b"}`, tool.Unsupported, "RE2"},
		{"lookahead", "grep", `{"input":"t","pattern":"a(?!b)"}`, tool.Unsupported, "RE2"},
		{"back-reference", "grep", `{"input":"t","pattern":"(a)\\1"}`, tool.Unsupported, "RE2"},
		{"possessive", "grep", `{"input":"t","pattern":"a++"}`, tool.Unsupported, "RE2"},
		{"a very long pattern", "grep", `{"input":"t","pattern":"` + strings.Repeat("x", 1001) + `"}`, tool.Invalid, "1000"},
		{"words", "count", `{"input":"t","mode":"words"}`, tool.Invalid, "lines, chars"},
		{"n as text", "chunk", `{"input":"t","n":"2"}`, tool.Invalid, "n"},
		{"n of 0", "chunk", `{"input":"t","n":0}`, tool.Invalid, "n"},
		{"no n", "chunk", `{"input":"t"}`, tool.Invalid, "n"},
		{"empty delimiter", "split", `{"input":"t","delimiter":""}`, tool.Invalid, "delimiter"},
		{"no number", "combine", `{"inputs":["t","u"],"strategy":"sum"}`, tool.Invalid, "not a number"},
		{"infinity", "combine", `{"inputs":"inf","strategy":"sum"}`, tool.Invalid, "not a number"},
		{"a huge exponent", "combine", `{"inputs":"huge","strategy":"sum"}`, tool.Invalid, "not a number"},
		{"vote on nothing", "combine", `{"inputs":[],"strategy":"vote"}`, tool.Invalid, "empty"},
		{"unknown strategy", "combine", `{"inputs":["t"],"strategy":"average"}`, tool.Invalid, "concat, sum, vote"},
		{"inputs of numbers", "combine", `{"inputs":[1],"strategy":"sum"}`, tool.Invalid, "inputs"},
		{"no inputs", "combine", `{"strategy":"sum"}`, tool.Invalid, "inputs"},
		{"a model's operation", "rlm_call", `{"query":"q","context":"t"}`, tool.Unsupported, "model"},
		{"unknown operation", "sort", `{}`, tool.Invalid, "slice, grep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := rlm.Apply(context.Background(), c.op, json.RawMessage(c.args), bound("t", "10", "u", "abc", "inf", "inf", "huge", "1e999"))
			require.Error(t, err)
			assert.Equal(t, c.kind, tool.KindOf(err), err)
			assert.Contains(t, err.Error(), c.message)
			assert.NotContains(t, err.Error(), "abc")
		})
	}
}

func newOps(t *testing.T, opts *rlm.Options) *rlm.Ops {
	t.Helper()
	ops, err := rlm.New(opts)
	require.NoError(t, err)
	return ops
}

func TestBindingsAreReplacedButBounded(t *testing.T) {
	ops := newOps(t, &rlm.Options{MaxText: 10, MaxTotal: 15})
	_, err := ops.Bind("a", "0123456789")
	require.NoError(t, err)
	_, err = ops.Bind("a", "012345678")
	require.NoError(t, err)
	_, err = ops.Bind("b", "01234567")
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	_, err = ops.Bind("b", "01234567890")
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
	for _, name := range []string{"", "a b", "é", "a,b", strings.Repeat("x", 81)} {
		_, err = ops.Bind(name, "")
		assert.Equal(t, tool.Invalid, tool.KindOf(err), name)
	}
	assert.Equal(t, "012345678", ops.Bindings()["a"].String())
	assert.Contains(t, ops.Bindings(), "context")
}

func TestEvalIsUnsupportedWithoutAnEngine(t *testing.T) {
	ops := newOps(t, nil)
	_, err := ops.Do(context.Background(), "eval", json.RawMessage(`{"code":"1"}`))
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	assert.NotContains(t, ops.Language(), "eval")
}
