package wisbox

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/tool"
)

// call is one call of a session under way, and what it has changed so far.
type call struct {
	s        *Session
	id, tool string
	step     string // the snapshot from before the first change
	streamed int    // bytes that went past the result, to the caller's own streams
	lasting  bool   // what it starts lives on after it

	mu   sync.Mutex
	seen Effects
}

type (
	callKey  struct{} // of the call that a context belongs to
	givenKey struct{} // of the call as a holder's client has named it
)

func newCall(ctx context.Context, s *Session, tool string) *call {
	c, ok := ctx.Value(givenKey{}).(*call)
	if !ok {
		c = &call{}
	}
	if c.id == "" {
		c.id = ulid.Make().String()
	}
	c.s, c.tool = s, tool
	return c
}

// callOf is nil where a tool is called without its session, which has no steps
// and no record then.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// effect is how a call can change the workspace, and so who knows what it did.
type effect int

const (
	byTools   effect = iota // the tools tell
	byRun                   // a program that ends with the call: two looks tell
	byLasting               // a program that runs on: nobody can tell
)

// changing gives tools that can change the workspace a step before it, and takes
// down what they have changed.
func changing(tools []tool.Tool, how func(name string) effect) []tool.Tool {
	out := slices.Clone(tools)
	for i, t := range tools {
		if t.ReadOnly {
			continue
		}
		out[i] = t.Via(func(ctx context.Context, raw json.RawMessage) (*tool.Result, error) {
			return callOf(ctx).change(ctx, how(t.Name), func(ctx context.Context) (*tool.Result, error) { return t.Call(ctx, raw) })
		})
	}
	return out
}

func always(e effect) func(string) effect { return func(string) effect { return e } }

// change does what changes the workspace.
func (c *call) change(ctx context.Context, how effect, do func(context.Context) (*tool.Result, error)) (*tool.Result, error) {
	if c == nil {
		return do(ctx)
	}
	c.lasting = how == byLasting
	act := func(ctx context.Context) (*tool.Result, error) {
		res, err := do(ctx)
		switch {
		case err == nil:
			c.note(res.Changes, how != byTools)
		case tool.KindOf(err) != tool.Invalid: // a program may have begun
			c.note(nil, how != byTools)
		}
		return res, err
	}
	if !c.s.opts.AutoSnapshot && !c.s.opts.RollbackOnFailure {
		return act(ctx)
	}
	return c.stepped(ctx, how, act)
}

const maxChanges = 200 // that an event names

// note adds to what the call has changed.
func (c *call) note(changes []tool.Change, unknown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Unknown = c.seen.Unknown || unknown
	room := maxChanges - len(c.seen.Changes)
	c.seen.Changes = append(c.seen.Changes, changes[:min(len(changes), room)]...)
	c.seen.More += int64(max(0, len(changes)-room))
}

// settle replaces what was noted by what is certain.
func (c *call) settle(seen Effects) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = seen
}

func (c *call) effects() Effects {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}
