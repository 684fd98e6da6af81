// Package profile offers the tools of a session with the names and shapes that language models were
// trained on: Anthropic's bash and text editor, OpenAI's shell and apply_patch, the tools of
// deepagents.
//
// A profile is a layer of adapters. Each takes the arguments of the foreign contract, calls one or
// more of wisbox's own tools by name, and formats their results. It has no other access to files
// and programs, so everything that those tools refuse stays refused.
package profile

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Caller runs wisbox's own tools: a session, or a *tool.Set. Its Call may be used
// from many goroutines at once.
type Caller interface {
	Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error)
}

// Names returns the profiles, the default first.
func Names() []string { return []string{"wisbox", "vfs", "anthropic", "openai", "deepagents"} }

// New returns the tools of a profile for one session that ends with its user. base describes
// wisbox's own tools; calls go to to, their session. The name "" means "wisbox"; an unknown name is
// invalid.
func New(name string, base *tool.Set, to Caller) (*tool.Set, error) {
	p, err := Open(name, base, to)
	if err != nil {
		return nil, err
	}
	return p.Set, nil
}

// Profile has the tools of one user of a session.
type Profile struct {
	*tool.Set
	shell *bash // nil if the profile has none
}

// Close ends the state that the tools keep between calls, for sessions that outlive this user. The
// tools must not be called afterwards.
func (p *Profile) Close(ctx context.Context) {
	if p.shell != nil {
		p.shell.close(ctx)
	}
}

// Open is like New for a user who may leave before the session ends.
func Open(name string, base *tool.Set, to Caller) (*Profile, error) {
	if words := advice[name]; words != nil {
		to = advised{to, words}
	}
	a := &adapters{base: base, to: to}
	var tools []tool.Tool
	switch name {
	case "", "wisbox":
		tools = a.own()
	case "vfs":
		tools = append([]tool.Tool{a.as("ls", "list_directory"), a.as("rm", "delete_file")}, a.own()...)
	case "anthropic":
		tools = a.anthropic()
	case "openai":
		tools = a.openAI()
	case "deepagents":
		tools = a.deepAgents()
	default:
		return nil, tool.Errorf(tool.Invalid, "unknown profile %q; the profiles are %s", name, strings.Join(Names(), ", ")).In("profile")
	}
	return &Profile{tool.NewSet(tools...), a.shell}, nil
}

type adapters struct {
	base  *tool.Set
	to    Caller
	shell *bash
}

func (a *adapters) own() []tool.Tool {
	var out []tool.Tool
	for _, t := range a.base.Tools() {
		out = append(out, a.as(t.Name, t.Name))
	}
	return out
}

// as returns one of wisbox's own tools under another name. It panics if there is no such tool,
// which any test of the profile reveals.
func (a *adapters) as(name, shown string) tool.Tool {
	t, ok := a.base.Lookup(name)
	if !ok {
		panic(fmt.Sprintf("profile: unknown tool %q", name))
	}
	return t.Renamed(shown).Via(func(ctx context.Context, raw json.RawMessage) (*tool.Result, error) {
		return a.to.Call(ctx, name, raw)
	})
}

// collector is a Caller that records the changes by the calls of one adapter's call.
type collector struct {
	Caller
	changes []tool.Change
}

// Call implements Caller. An adapter makes its calls one after the other.
func (c *collector) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	res, err := c.Caller.Call(ctx, name, raw)
	if err == nil {
		c.changes = append(c.changes, res.Changes...)
	}
	return res, err
}

// collecting returns a tool for an adapter whose calls of wisbox's own tools change files.
func collecting[P, R any](to Caller, spec tool.Spec, fn func(ctx context.Context, to Caller, p P) (R, error)) tool.Tool {
	spec.Effect = tool.FileEffect
	return tool.NewChanging(spec, func(ctx context.Context, p P) (R, []tool.Change, error) {
		c := &collector{Caller: to}
		value, err := fn(ctx, c, p)
		return value, c.changes, err
	})
}

// args are the arguments of a call of wisbox's own tools.
type args map[string]any

// ask calls one of wisbox's own tools and decodes its result.
func ask[R any](ctx context.Context, to Caller, name string, arguments args) (*R, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return nil, fmt.Errorf("marshal the arguments of %s: %w", name, err)
	}
	res, err := to.Call(ctx, name, raw)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(res.Value)
	if err != nil {
		return nil, fmt.Errorf("marshal the result of %s: %w", name, err)
	}
	out := new(R)
	if err := json.Unmarshal(value, out); err != nil {
		return nil, fmt.Errorf("read the result of %s: %w", name, err)
	}
	return out, nil
}

// do is like ask for calls whose result doesn't matter.
func do(ctx context.Context, to Caller, name string, arguments args) error {
	_, err := ask[struct{}](ctx, to, name, arguments)
	return err
}

// renamed changes the names of parameters in an error to those of the foreign contract.
func renamed(err error, names map[string]string) error {
	e := tool.AsError(err)
	if e == nil {
		return nil
	}
	field, message := e.Field, e.Message
	for own, name := range names {
		if own == e.Field {
			field = name
		}
		if own == e.Field || strings.Contains(own, "_") { // other parameters may be words
			message = strings.ReplaceAll(message, own, name)
		}
	}
	if field == e.Field && message == e.Message {
		return err
	}
	return tool.Errorf(e.Kind, "%s", message).In(field).Because(err)
}
