package profile_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/mcpserver"
	"github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// session records the calls that it gets.
type session struct {
	added *tool.Set
	asked []string
}

func (s *session) ID() string                                { return "box" }
func (s *session) Added() *tool.Set                          { return s.added }
func (s *session) GuidanceAs(profile string) (string, error) { return "as " + profile, nil }
func (s *session) Close(context.Context) error               { s.asked = append(s.asked, "close"); return nil }

func (s *session) Call(_ context.Context, name string, _ json.RawMessage) (*tool.Result, error) {
	s.asked = append(s.asked, name)
	return &tool.Result{}, nil
}

func (s *session) CallOwn(_ context.Context, name string, _ json.RawMessage) (*tool.Result, error) {
	s.asked = append(s.asked, "own "+name)
	return &tool.Result{Value: map[string]any{"process_id": "p"}}, nil
}

func (s *session) Watch(context.Context, string) (<-chan vfs.Change, error) { return nil, nil }

func TestABoundSessionHasTheToolsOfItsProfileAndThoseAdded(t *testing.T) {
	set, _ := newSet(t, "wisbox")
	added := tool.New(tool.Spec{Name: "greet"}, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	s := &session{added: tool.NewSet(added)}
	bound, err := profile.Bind("vfs", set, s)
	require.NoError(t, err)
	assert.Equal(t, "box", bound.ID())
	for _, name := range []string{"delete_file", "greet"} {
		_, err := bound.Call(t.Context(), name, json.RawMessage(`{"path":"f"}`))
		require.NoError(t, err, name)
	}
	_, err = bound.Call(t.Context(), "bash", nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err), "a tool of another profile")
	text, err := bound.Guidance()
	require.NoError(t, err)
	assert.Equal(t, "as vfs", text)
	require.NoError(t, bound.Close(t.Context()))
	assert.Equal(t, []string{"own rm", "greet", "close"}, s.asked)

	_, err = profile.Bind("nosuch", set, s)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestABoundSessionLosesNoCapability(t *testing.T) {
	set, _ := newSet(t, "wisbox")
	bound, err := profile.Bind("", set, &session{})
	require.NoError(t, err)
	var served mcpserver.Session = bound
	_, watched := mcpserver.As[mcpserver.Watched](served)
	_, own := mcpserver.As[mcpserver.OwnNamed](served)
	guided, ok := mcpserver.As[mcpserver.Guided](served)
	assert.True(t, watched && own && ok)
	text, err := guided.Guidance()
	require.NoError(t, err)
	assert.Equal(t, "as ", text)
}
