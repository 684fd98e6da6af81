package evaltool_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

func TestAContextIsMadeByItsNameOrByItsFirstEvaluation(t *testing.T) {
	s := newStage(t, nil)
	_, err := s.CreateContext(evaltool.Context{Name: "a", Dir: "d", Env: map[string]string{"K": "v"}})
	require.NoError(t, err)
	_, err = s.call(t, `{"code":"1","context":"a"}`)
	require.NoError(t, err)
	assert.True(t, s.engine.got.Kept, "a context is kept")
	assert.Equal(t, "a", s.engine.got.Context)
	assert.Equal(t, "d", s.engine.got.Dir)
	assert.Equal(t, map[string]string{"K": "v"}, s.engine.got.ContextEnv)
	_, err = s.call(t, `{"code":"1","context":"b","state":"kept"}`)
	require.NoError(t, err)
	assert.Equal(t, []evaltool.Context{{Name: "a", Language: "python", Dir: "d", Env: map[string]string{"K": "v"}}, {Name: "b", Language: "python"}}, s.Contexts())
	require.NoError(t, s.RestartContext(t.Context(), "b"))
	require.NoError(t, s.RestartContext(t.Context(), ""))
	require.NoError(t, s.RemoveContext(t.Context(), "a"))
	assert.Len(t, s.Contexts(), 1)
	_, err = s.call(t, `{"code":"1"}`)
	require.NoError(t, err)
	assert.False(t, s.engine.got.Kept)
}

func TestContextsThatAreWrongAreRefused(t *testing.T) {
	s := newStage(t, nil)
	_, err := s.CreateContext(evaltool.Context{Name: "a"})
	require.NoError(t, err)
	create := func(c evaltool.Context) error { _, err := s.CreateContext(c); return err }
	for name, c := range map[string]struct {
		err   error
		kind  tool.Kind
		field string
	}{
		"no name":        {create(evaltool.Context{}), tool.Invalid, "name"},
		"a path":         {create(evaltool.Context{Name: "a/b"}), tool.Invalid, "name"},
		"there":          {create(evaltool.Context{Name: "a"}), tool.Exists, "name"},
		"no language":    {create(evaltool.Context{Name: "c", Language: "cobol"}), tool.Unsupported, "language"},
		"a NUL":          {create(evaltool.Context{Name: "c", Dir: "a\x00b"}), tool.Invalid, "dir"},
		"a long dir":     {create(evaltool.Context{Name: "c", Dir: strings.Repeat("x", 4097)}), tool.Invalid, "dir"},
		"restart none":   {s.RestartContext(t.Context(), "none"), tool.NotFound, "name"},
		"remove none":    {s.RemoveContext(t.Context(), "none"), tool.NotFound, "name"},
		"remove default": {s.RemoveContext(t.Context(), ""), tool.Invalid, "name"},
	} {
		assert.Equal(t, c.kind, tool.KindOf(c.err), name)
		assert.Equal(t, c.field, tool.AsError(c.err).Field, name)
	}
	_, err = s.call(t, `{"code":"1","context":"a b"}`)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.Equal(t, "context", tool.AsError(err).Field)
	for i := range evaltool.MaxContexts - 1 {
		require.NoError(t, create(evaltool.Context{Name: fmt.Sprint("more", i)}))
	}
	assert.Equal(t, tool.Limit, tool.KindOf(create(evaltool.Context{Name: "last"})))
	_, err = s.call(t, `{"code":"1","context":"last"}`)
	assert.Equal(t, tool.Limit, tool.KindOf(err))
}

func TestBashIsALanguageOfContexts(t *testing.T) {
	shell := &puppet{resp: evaltool.Response{Status: evaltool.StatusExited}}
	e, err := evaltool.New(&evaltool.Options{Files: memory{}, Container: &puppet{}, Bash: shell})
	require.NoError(t, err)
	_, err = e.CreateContext(evaltool.Context{Name: "s", Language: "bash"})
	require.NoError(t, err)
	follow := func(run evaltool.Run) error { _, err := e.Follow(context.Background(), run, nil); return err }
	require.NoError(t, follow(evaltool.Run{Params: evaltool.Params{Code: "ls", Context: "s"}}))
	assert.True(t, shell.got.Kept)
	require.NoError(t, follow(evaltool.Run{Params: evaltool.Params{Code: "ls"}, Language: "bash"}))
	for name, run := range map[string]evaltool.Run{
		"globals":          {Params: evaltool.Params{Code: "ls", Context: "s", Globals: map[string]string{"a": "1"}}},
		"wasm":             {Params: evaltool.Params{Code: "ls", Context: "s", Sandbox: "wasm"}},
		"another language": {Params: evaltool.Params{Code: "ls", Context: "s"}, Language: "python"},
	} {
		assert.Equal(t, tool.Invalid, tool.KindOf(follow(run)), name)
	}
	assert.Equal(t, tool.Unsupported, tool.KindOf(follow(evaltool.Run{Params: evaltool.Params{Code: "ls"}, Language: "r"})))
}

func TestACallThatIsRefusedMakesNoContext(t *testing.T) {
	s := newStage(t, nil)
	for _, args := range []string{`{"code":"1","context":"a","sandbox":"none"}`, `{"code":"1","context":"a","reads":["none"]}`} {
		_, err := s.call(t, args)
		require.Error(t, err)
	}
	assert.Empty(t, s.Contexts())
}

// removed is an engine whose context is removed while it evaluates.
type removed struct {
	puppet
	remove func()
	resets int
}

func (r *removed) Evaluate(context.Context, evaltool.Request) (evaltool.Response, error) {
	r.remove()
	r.resets = 0
	return evaltool.Response{Status: evaltool.StatusExited}, nil
}

func (r *removed) Reset(context.Context, string) error { r.resets++; return nil }
func (*removed) Cancel(string)                         {}
func (*removed) Close() error                          { return nil }

func TestARemovedContextLeavesNoInterpreter(t *testing.T) {
	r := &removed{remove: func() {}}
	e, err := evaltool.New(&evaltool.Options{Files: memory{}, Container: r})
	require.NoError(t, err)
	_, err = e.Evaluate(t.Context(), evaltool.Params{Code: "1", Context: "a"})
	require.NoError(t, err)
	assert.Zero(t, r.resets)
	r.remove = func() { assert.NoError(t, e.RemoveContext(t.Context(), "a")) }
	_, err = e.Evaluate(t.Context(), evaltool.Params{Code: "1", Context: "a"})
	require.NoError(t, err)
	assert.Equal(t, 1, r.resets)
	assert.Empty(t, e.Contexts())
}
