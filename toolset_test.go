package wisbox_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/tool"
)

func TestTheToolsSayWhatTheEnginesOfTheSessionAllow(t *testing.T) {
	m, _ := manager(t, wisbox.Options{Wasm: wasm.Options{Fuel: 123_456}})
	set, err := m.Tools(&wisbox.SessionOptions{MaxCode: 5000, MaxEvalTimeout: 9 * time.Second})
	require.NoError(t, err)
	python, _ := set.Lookup("evaluate_python")
	for _, says := range []string{"code 5000 characters, 9 seconds", `sandbox "container"`, `sandbox "restricted"`, "fuel (at most 123456)"} {
		assert.Contains(t, python.Description, says)
	}
	texts, _ := set.Lookup("context_op")
	assert.Contains(t, texts.Description, "eval {code, inputs?}")

	s, err := m.Open(t.Context(), &wisbox.SessionOptions{MaxCode: 5000, MaxEvalTimeout: 9 * time.Second})
	require.NoError(t, err)
	defer s.Close(t.Context())
	for _, one := range s.Tools().Tools() {
		same, there := set.Lookup(one.Name)
		require.True(t, there, one.Name)
		assert.Equal(t, one.Description, same.Description, "before the session is open and after")
	}
	without, _ := wisbox.ToolSet().Lookup("evaluate_python")
	assert.Contains(t, without.Description, `sandbox "wasm"`)
}

func TestAProfileIsKeptWithItsSession(t *testing.T) {
	client, m, _ := heldWith(t, time.Minute, wisbox.SessionOptions{Profile: "anthropic"})
	for range 2 {
		assert.Equal(t, "anthropic", client.Options().Profile)
		_, there := client.Tools().Lookup("str_replace_based_edit_tool")
		assert.True(t, there)
		require.NoError(t, client.Close(t.Context()))
		var err error
		client, err = m.Attach(t.Context(), "box")
		require.NoError(t, err)
	}
	_, err := client.Call(t.Context(), "str_replace_based_edit_tool", json.RawMessage(`{"command":"create","path":"/workspace/f","file_text":"x"}`))
	require.NoError(t, err)
	_, err = client.Call(t.Context(), "read_file", json.RawMessage(`{"file_path":"f"}`))
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	res, err := client.CallOwn(t.Context(), "read_file", json.RawMessage(`{"file_path":"f"}`))
	require.NoError(t, err)
	assert.Contains(t, res.Text, "x")
	_, err = client.CallOwn(t.Context(), "bash", nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	require.NoError(t, client.Close(t.Context()))
}

func TestWisboxsOwnNamesWorkInEverySession(t *testing.T) {
	for _, name := range profile.Names() {
		m, _ := manager(t, wisbox.Options{})
		s, err := m.Open(t.Context(), &wisbox.SessionOptions{Profile: name})
		require.NoError(t, err)
		for range 2 {
			_, err = s.CallOwn(t.Context(), "write_file", json.RawMessage(`{"file_path":"f","content":"x","encoding":"utf-8"}`))
			require.NoError(t, err, name)
			require.NoError(t, s.Reset(t.Context()))
		}
		require.NoError(t, s.Close(t.Context()))
	}
	err := (&wisbox.SessionOptions{Profile: "nosuch"}).Check()
	assert.Equal(t, "profile", tool.AsError(err).Field)
	assert.ErrorContains(t, err, "the profiles are wisbox, vfs")
}

func TestTheGuidanceOfAProfileNamesItsTools(t *testing.T) {
	for _, name := range []string{"anthropic", "openai", "deepagents"} {
		set, err := wisbox.ToolProfile(name)
		require.NoError(t, err)
		for _, one := range set.Tools() {
			assert.Contains(t, wisbox.Guidance(name), one.Name, name)
		}
		assert.Contains(t, wisbox.Guidance(name), "Host directories can't be brought in while the session runs")
	}
}
