package wisbox

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

// ToolSet describes the tools without a session: names, texts and schemas, for listing. Calls of
// its tools fail.
func ToolSet() *tool.Set {
	set, _ := ToolProfile("")
	return set
}

// ToolProfile is like ToolSet with the names and in the shapes that some models were trained on,
// see package profile. An unknown profile is invalid.
func ToolProfile(name string) (*tool.Set, error) {
	// With explicit limits, an invalid limit in the environment doesn't prevent the list.
	engine, err := wasm.New(&wasm.Options{Fuel: wasm.DefaultFuel, Memory: wasm.DefaultMemory})
	if err != nil {
		return nil, err
	}
	return toolsOf(SessionOptions{Profile: name}, engine)
}

// Tools describes the tools of a future session of this manager with these options: their texts
// have the limits of its engines and its own. Calls of these tools fail.
func (m *Manager) Tools(opts *SessionOptions) (*tool.Set, error) {
	o := SessionOptions{}
	if opts != nil {
		o = *opts
	}
	engine, err := m.wasm()
	if err != nil {
		return nil, err
	}
	return toolsOf(o, engine)
}

func toolsOf(o SessionOptions, engine *wasm.Engine) (*tool.Set, error) {
	s, err := describedServices(o, engine)
	if err != nil {
		return nil, err
	}
	set, err := shaped(s.tools(func(context.Context) error { return nil }), o.Profile)
	if err != nil {
		return nil, err
	}
	tools := described(set.Tools())
	for i := range tools {
		tools[i].Description = o.describeNetwork(tools[i].Description)
	}
	return tool.NewSet(tools...), nil
}

// describedServices returns services that can only describe their tools.
func describedServices(o SessionOptions, engine *wasm.Engine) (s *services, err error) {
	s = &services{}
	s.eval, err = evaltool.New(&evaltool.Options{
		Files: s.files, Container: python.New(&python.Options{}), Wasm: engine.Session(nil), MaxCode: o.MaxCode, MaxTimeout: o.MaxEvalTimeout, MaxOutput: o.MaxOutput,
	})
	if err != nil {
		return nil, err
	}
	s.texts, err = rlm.New(&rlm.Options{Eval: engine})
	return s, err
}

// described returns tools that can be listed but not called.
func described(tools []tool.Tool) []tool.Tool {
	out := slices.Clone(tools)
	for i, t := range tools {
		out[i] = t.Via(func(context.Context, json.RawMessage) (*tool.Result, error) {
			return nil, tool.Errorf(tool.Unsupported, "%s is only described here; call it by Session.Call", t.Name)
		})
	}
	return out
}

// Tools describes the session's tools, including the embedder's own. Use [Session.Call] to run
// them, which makes steps and records; calls of these tools fail.
func (s *Session) Tools() *tool.Set {
	base, err := s.m.Tools(&s.opts)
	if err != nil { // the session was opened with it
		base = ToolSet()
	}
	return s.withAdded(base)
}

// Added describes the embedder's own tools, see [Options.Tools]; nil means none.
func (s *Session) Added() *tool.Set {
	if s.extra == nil {
		return nil
	}
	return tool.NewSet(described(s.extra.Tools())...)
}

func (s *Session) withAdded(base *tool.Set) *tool.Set {
	if s.extra == nil {
		return base
	}
	own := slices.DeleteFunc(slices.Clone(base.Tools()), func(t tool.Tool) bool { _, taken := s.extra.Lookup(t.Name); return taken })
	return tool.NewSet(append(own, described(s.extra.Tools())...)...)
}

func (s *Session) lookupExtra(name string) (tool.Tool, bool) {
	if s.extra == nil {
		return tool.Tool{}, false
	}
	return s.extra.Lookup(name)
}

// callExtra runs one of the embedder's own tools and records it here, because no other process
// knows it.
func (s *Session) callExtra(ctx context.Context, t tool.Tool, raw json.RawMessage) (*tool.Result, error) {
	answer, _, err := s.observe(ctx, record{event: journal.ForTool(t.Name, raw), ours: true}, func(ctx context.Context, _ journal.Call) (any, journal.Outcome, error) {
		res, err := t.Call(ctx, raw)
		if err != nil {
			return nil, journal.Outcome{}, err
		}
		return res, journal.Outcome{Failed: res.Failed, Verdict: res.Verdict, Size: len(res.Text), Effects: journal.EffectsOf(res.Changes)}, nil
	})
	if err != nil {
		return nil, err
	}
	return answer.(*tool.Result), nil
}
