package wisbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

// TestWhoOpensTheSessionRaisesTheLimitsOfEvaluations, and an agent can't.
func TestWhoOpensTheSessionRaisesTheLimitsOfEvaluations(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{MaxOutput: 10_000, MaxCode: 5_000, MaxEvalTimeout: time.Minute})
	require.NoError(t, err)
	code, err := json.Marshal(map[string]any{"code": "print('x' * 20_000)\n" + strings.Repeat("#", 4_000), "timeout": 50})
	require.NoError(t, err)
	for _, state := range []string{"fresh", "kept"} {
		res, err := s.Call(t.Context(), "evaluate_python", json.RawMessage(strings.Replace(string(code), "{", `{"state":"`+state+`",`, 1)))
		require.NoError(t, err)
		r := res.Value.(evaltool.Result)
		assert.Equal(t, strings.Repeat("x", 9_997)+"...", r.Stdout)
		assert.Empty(t, r.Message)
	}
	_, err = s.Call(t.Context(), "evaluate_python", json.RawMessage(`{"code":"`+strings.Repeat("#", 5_001)+`"}`))
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	res, err := s.Call(t.Context(), "evaluate_python", json.RawMessage(`{"code":"1","timeout":100}`))
	require.NoError(t, err)
	assert.Contains(t, res.Text, "changed to 60 s")
	evaluate, _ := s.Tools().Lookup("evaluate_python")
	assert.Contains(t, evaluate.Description, "code 5000 characters, 60 seconds, 10000 characters of stdout and stderr, 4096 of value")

	for field, o := range map[string]wisbox.SessionOptions{
		"max_output": {MaxOutput: 10}, "max_code": {MaxCode: -1}, "eval_timeout": {MaxEvalTimeout: 25 * time.Hour}, "max_timeout": {MaxTimeout: -1},
	} {
		assert.Equal(t, field, tool.AsError(o.Check()).Field)
	}
}

// TestSecretsAreCoveredInWhatIsFollowed: in output, displayed objects and exceptions.
func TestSecretsAreCoveredInWhatIsFollowed(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		require.NoError(t, s.SetSecrets(t.Context(), map[string]wisbox.Secret{"TOKEN": {Value: []byte("a value of a secret")}}))
		var all []evaltool.Part
		code := "v = 'a value of ' + 'a secret'\nprint(v)\ndisplay(v)\nclass P:\n def _repr_png_(s): return v.encode()\ndisplay(P())\ndisplay([v])\nraise ValueError(v)"
		res, err := s.Evaluate(t.Context(), evaltool.Run{Params: evaltool.Params{Code: code}}, func(p evaltool.Part) { all = append(all, p) })
		require.NoError(t, err)
		assert.True(t, res.Failed)
		require.Len(t, all, 6)
		raw, err := json.Marshal(all)
		require.NoError(t, err)
		assert.NotContains(t, string(raw), "a value of a secret")
		assert.NotContains(t, string(raw), "YSB2YWx1ZSBvZiBhIHNlY3JldA", "as base64")
		assert.Contains(t, all[1].Stdout, "***")
	})
}

// TestSecretsAreCoveredInProgress, whose displayed objects don't come from a redacted stream.
func TestSecretsAreCoveredInProgress(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.SetSecrets(t.Context(), map[string]wisbox.Secret{"TOKEN": {Value: []byte("a value of a secret")}}))
	var said []string
	args, err := json.Marshal(map[string]string{"code": "v = 'a value of ' + 'a secret'\nprint(v)\ndisplay(v)\ndisplay('x' * 1990 + v)"})
	require.NoError(t, err)
	_, err = s.Call(tool.WithProgress(t.Context(), func(text string) { said = append(said, text) }), "evaluate_python", args)
	require.NoError(t, err)
	require.NotEmpty(t, said, "progress")
	assert.Contains(t, said[len(said)-1], "xxx")
	for _, text := range said {
		assert.NotContains(t, text, "secret")
	}
}
