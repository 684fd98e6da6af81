package rlm

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/llm"
	"github.com/wisbox/wisbox/tool"
)

// callArgs are the arguments of rlm_call: a question about one binding, which a separate
// model answers.
type callArgs struct {
	Query   string `json:"query"`
	Context string `json:"context,omitempty" default:"context"`
}

// mapArgs are the arguments of map: the same question about each of several texts. Inputs
// names the texts as in combine. The answers are a JSON array in the order of the texts.
type mapArgs struct {
	Query  string `json:"query"`
	Inputs any    `json:"inputs"`
}

// maxMapItems bounds one map.
const maxMapItems = 200

// step runs one step of a commit, of any kind.
func (c *conversation) step(ctx context.Context, ops *Ops, step Step) (Outcome, error) {
	if step.Op != OpCall && step.Op != OpMap {
		return do(ctx, ops, step)
	}
	args, err := json.Marshal(step.Args)
	if err != nil {
		return Outcome{}, tool.Errorf(tool.Invalid, "args has a value that JSON can't hold; use text, numbers, lists and objects").In("args")
	}
	run := c.callStep
	if step.Op == OpMap {
		run = c.mapStep
	}
	result, err := run(ctx, ops, args)
	if err != nil {
		return Outcome{}, err
	}
	_, err = ops.Bind(step.Bind, result)
	return Outcome{Result: result}, err
}

func (c *conversation) callStep(ctx context.Context, ops *Ops, raw json.RawMessage) (string, error) {
	var a callArgs
	if err := tool.Decode(raw, &a); err != nil {
		return "", err
	}
	texts, err := ops.Bindings().take([]string{a.Context})
	if err != nil {
		return "", err
	}
	return c.child(ctx, a.Query, texts[0].s)
}

func (c *conversation) mapStep(ctx context.Context, ops *Ops, raw json.RawMessage) (string, error) {
	var a mapArgs
	if err := tool.Decode(raw, &a); err != nil {
		return "", err
	}
	names, ok := namesOf(a.Inputs)
	if !ok {
		return "", tool.Errorf(tool.Invalid, "inputs must be the name of a binding or a list of names").In("inputs")
	}
	texts, err := ops.Bindings().take(names)
	if err != nil {
		return "", err
	}
	parts, err := c.parts(ctx, texts)
	if err != nil {
		return "", err
	}
	answers, err := c.each(ctx, a.Query, parts)
	if err != nil {
		return "", err
	}
	b := budget.New(ctx, limits(c.ops.opts.MaxText))
	defer b.Close()
	return jsonList(slices.Values(answers), b)
}

// parts returns the texts for map to ask about.
func (c *conversation) parts(ctx context.Context, texts []*Text) ([]string, error) {
	b := budget.New(ctx, limits(c.ops.opts.MaxText))
	defer b.Close()
	values, err := valuesOf(texts, b)
	if err != nil {
		return nil, err
	}
	if values.count > maxMapItems {
		return nil, tool.Errorf(tool.Limit, "map would ask about %d texts; the maximum is %d: chunk the input into fewer", values.count, maxMapItems).In("inputs")
	}
	parts := make([]string, 0, values.count)
	err = values.each(b, func(value string) error {
		parts = append(parts, value)
		return nil
	})
	return parts, err
}

// each asks about every text, several at a time, and returns the answers in order.
func (c *conversation) each(ctx context.Context, query string, values []string) ([]string, error) {
	answers := make([]string, len(values))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.tree.opts.Limits.Parallel)
	for i, value := range values {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			answers[i], err = c.child(ctx, query, value)
			return err
		})
	}
	return answers, group.Wait()
}

// child answers a question about a text by a conversation below this one or, at the maximum
// depth, by one direct call.
func (c *conversation) child(ctx context.Context, query, text string) (string, error) {
	if c.depth >= c.tree.opts.Limits.Depth {
		return c.direct(ctx, query, text)
	}
	below, err := c.tree.conversation(c.depth+1, c.tree.opts.Child, query, text)
	if err != nil {
		return "", err
	}
	defer below.ops.release()
	return below.run(ctx)
}

func (c *conversation) direct(ctx context.Context, query, text string) (string, error) {
	text, _ = NewText(text).first(directChars)
	return c.tree.ask(ctx, c.tree.opts.Child, []llm.Message{
		{Role: llm.System, Content: "Answer the question from the text alone, with the answer and nothing else."},
		{Role: llm.User, Content: "Text:\n" + text + "\n\nQuestion: " + query},
	})
}

// fork returns an Ops with the same texts. Its new bindings are its own until they are
// released.
func (o *Ops) fork() *Ops {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &Ops{opts: o.opts, bindings: maps.Clone(o.bindings), charged: map[string]int64{}}
}
