package wisbox

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/tool"
)

// Evaluate evaluates Python, bash or JavaScript like evaluate_python, with the same record and
// result, whose Value is an evaltool.Result or its JSON. Meanwhile it calls each for the parts of
// the output, in order and from one goroutine at a time. A slow each slows the code down, up to its
// timeout. If ctx ends, the code is stopped; a kept interpreter keeps its names. Evaluate doesn't
// call each after it has returned.
func (s *Session) Evaluate(ctx context.Context, o evaltool.Run, each func(evaltool.Part)) (*tool.Result, error) {
	if err := checkRunEnv(o.Env); err != nil {
		return nil, err
	}
	if each == nil {
		each = func(evaltool.Part) {}
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, tool.Errorf(tool.Invalid, "timeout is not a number; give it in seconds").In("timeout")
	}
	if len(raw) > tool.MaxArguments {
		return nil, tool.Errorf(tool.TooLarge, "the code and its globals have %d bytes; the maximum is %d", len(raw), tool.MaxArguments)
	}
	reader := evaltool.ReadParts(each)
	defer reader.Close()
	return perform[*tool.Result](ctx, s, evaluateOp{o}, hold.Streams{Stdout: reader})
}

// maxRunEnv bounds the variables of a context, and those of one run, in bytes.
const maxRunEnv = 64 << 10

func checkRunEnv(env map[string]string) error {
	size := 0
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00\n") || strings.Contains(value, "\x00") {
			return tool.Errorf(tool.Invalid, "env has a name that is empty or has =, NUL or a newline, or a value with NUL; use other names").In("env")
		}
		size += len(name) + len(value) + 2
	}
	if size > maxRunEnv {
		return tool.Errorf(tool.TooLarge, "env has %d bytes; the maximum is %d", size, maxRunEnv).In("env")
	}
	return nil
}

// evaluateOp evaluates code, and meanwhile writes parts as lines to its output stream.
type evaluateOp struct{ evaltool.Run }

func (o evaluateOp) event() Event {
	raw, _ := json.Marshal(o.Params) // Evaluate has checked that it can
	return journal.ForTool("evaluate_python", raw)
}

func (o evaluateOp) do(ctx context.Context, l *local, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	line := evaltool.PartLines(io.Stdout)
	feed := evaltool.NewFeed(ctx, func(p evaltool.Part) { line(l.cleanPart(p)) })
	defer feed.Close(ctx)
	return l.call(ctx, c, tool.ProgramEffect, true, func(ctx context.Context) (*tool.Result, error) {
		if err := l.room(ctx); err != nil {
			return nil, err
		}
		res, err := l.eval.Follow(ctx, o.Run, feed)
		if err != nil {
			return nil, err
		}
		return tool.ResultOf(res)
	})
}

// cleanPart returns a part without the values of secrets. Its streams have none, because they come
// from a redacted runner.
func (l *local) cleanPart(p evaltool.Part) evaltool.Part {
	if p.Shown == nil && p.Raised == nil {
		return p
	}
	clean, ok := l.secrets.CleanResult(&tool.Result{Value: p, Blobs: p.Blobs()}).Value.(evaltool.Part)
	if !ok { // it can't be redacted
		return evaltool.Part{}
	}
	return clean
}

// keepShown keeps the tables, pictures and charts of an evaluation for later readers of a kept
// session's log. It only logs a failure.
func (l *local) keepShown(call string, res *tool.Result) {
	r, ok := res.Value.(evaltool.Result)
	if !ok || !l.opts.Kept || len(r.Results) == 0 {
		return
	}
	if err := l.dir.KeepShown(call, evaltool.ObjectsOf(evaltool.Response{Results: r.Results, Display: r.Display})); err != nil {
		l.m.log.Warn("keep what an evaluation has shown", "session", l.dir.ID(), "error", err)
	}
}

// Contexts returns the named kept interpreters of the session, without the default one.
func (s *Session) Contexts(ctx context.Context) ([]evaltool.Context, error) {
	return perform[[]evaltool.Context](ctx, s, contextsOp{}, hold.Streams{})
}

// CreateContext creates a named kept interpreter with its own language, directory and variables. It
// starts with its first evaluation.
func (s *Session) CreateContext(ctx context.Context, c evaltool.Context) error {
	if err := checkRunEnv(c.Env); err != nil {
		return err
	}
	return s.change(ctx, "create", c)
}

// RestartContext ends the evaluation of a context and forgets its names; "" is the default context.
func (s *Session) RestartContext(ctx context.Context, name string) error {
	return s.change(ctx, "restart", evaltool.Context{Name: name})
}

// RemoveContext ends the evaluation of a context and removes the context.
func (s *Session) RemoveContext(ctx context.Context, name string) error {
	return s.change(ctx, "remove", evaltool.Context{Name: name})
}

func (s *Session) change(ctx context.Context, what string, c evaltool.Context) error {
	_, err := perform[struct{}](ctx, s, changeContextOp{what, c}, hold.Streams{})
	return err
}

// contextsOp lists the contexts, and leaves no record.
type contextsOp struct{}

func (o contextsOp) do(_ context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return l.eval.Contexts(), journal.Outcome{}, nil
}

// changeContextOp changes a context.
type changeContextOp struct {
	Change  string           `json:"change"` // create, restart or remove
	Context evaltool.Context `json:"context"`
}

func (o changeContextOp) event() Event {
	return Event{Tool: "context_" + clip.Text(o.Change), Args: map[string]any{"name": clip.Text(o.Context.Name)}}
}

func (o changeContextOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	var err error
	switch o.Change {
	case "create":
		_, err = l.eval.CreateContext(o.Context)
	case "restart":
		err = l.eval.RestartContext(ctx, o.Context.Name)
	case "remove":
		err = l.eval.RemoveContext(ctx, o.Context.Name)
	default:
		err = tool.Errorf(tool.Invalid, "change is %q; it must be create, restart or remove", clip.Text(o.Change)).In("change")
	}
	return struct{}{}, journal.Outcome{}, err
}
