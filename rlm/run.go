package rlm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/wisbox/wisbox/tool"
)

// Message is one of a conversation. Role is system, user or assistant.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Model continues a conversation. It may be used from many goroutines at once.
type Model interface {
	Complete(ctx context.Context, messages []Message) (string, error)
}

// Limits bound a run. A value of 0 is the default, a negative one is 0.
type Limits struct {
	Explore int // explore steps of one conversation, default 20
	Commits int // commits of one conversation, default 5
	Depth   int // conversations below conversations, default 1
	Turns   int // messages of one conversation, default 40
	Calls   int // messages of all models together, default 500
}

// The limits that no option changes.
const (
	shownToModel  = 8_000   // characters of a result that a model is shown
	directChars   = 100_000 // characters of the context of a direct call
	badMessages   = 3       // in a row end a conversation
	mapConcurrent = 4
)

func (l Limits) orDefaults() Limits {
	for _, f := range []struct {
		value *int
		def   int
	}{{&l.Explore, 20}, {&l.Commits, 5}, {&l.Depth, 1}, {&l.Turns, 40}, {&l.Calls, 500}} {
		if *f.value == 0 {
			*f.value = f.def
		}
		*f.value = max(0, *f.value)
	}
	return l
}

// RunOptions configure a run.
type RunOptions struct {
	Query   string // required
	Context string // bound to context
	Model   Model  // required
	Child   Model  // of rlm_call and map; nil is Model
	Limits  Limits
	// Ops are those of the operations: evaluator, cache, sizes. Files are not used.
	Ops Options
	// OnTurn is told of every move, from several goroutines at once; it may be nil.
	OnTurn func(Turn)
}

// Turn is one move of a conversation and what came of it.
type Turn struct {
	Depth  int
	Number int // from 1
	Move   Move
	Reply  string // what the model is told, "" after a final
}

// Answer is how a run ended well.
type Answer struct {
	Text     string `json:"answer"`
	Turns    int    `json:"turns"` // of the first conversation
	Explored int    `json:"explored"`
	Commits  int    `json:"commits"`
	Calls    int    `json:"calls"` // messages of all models
}

// Run has a model answer a question about a text that it sees only through
// operations. It always ends: every conversation has a bounded number of turns,
// conversations are nested to a bounded depth, and all of them share a bounded
// number of calls. Errors are *tool.Error: limit when no answer came within the
// limits, invalid when the model kept breaking the protocol, unavailable when it
// could not be reached.
func Run(ctx context.Context, opts *RunOptions) (Answer, error) {
	if opts.Model == nil || strings.TrimSpace(opts.Query) == "" {
		return Answer{}, tool.Errorf(tool.Invalid, "a run needs a question and a model").In("query")
	}
	t := &tree{opts: *opts}
	t.opts.Limits = opts.Limits.orDefaults()
	if t.opts.Child == nil {
		t.opts.Child = opts.Model
	}
	c, err := t.conversation(0, opts.Model, opts.Query, opts.Context)
	if err != nil {
		return Answer{}, err
	}
	text, err := c.run(ctx)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Text: text, Turns: c.turns, Explored: c.explored, Commits: c.commits, Calls: int(t.calls.Load())}, nil
}

// tree is a run: the first conversation and all below it.
type tree struct {
	opts  RunOptions
	calls atomic.Int64
}

// ask is one message of a model.
func (t *tree) ask(ctx context.Context, m Model, messages []Message) (string, error) {
	if t.calls.Add(1) > int64(t.opts.Limits.Calls) {
		t.calls.Add(-1)
		return "", tool.Errorf(tool.Limit, "the models were asked %d times, which is the limit of a run", t.opts.Limits.Calls)
	}
	return m.Complete(ctx, messages)
}

// conversation is one model at work on one text.
type conversation struct {
	tree     *tree
	depth    int
	model    Model
	ops      *Ops
	messages []Message

	turns, explored, commits, bad int
}

func (t *tree) conversation(depth int, m Model, query, text string) (*conversation, error) {
	opts := t.opts.Ops
	opts.Files = nil
	ops, err := New(&opts)
	if err != nil {
		return nil, err
	}
	bound, err := ops.Bind(ContextName, text)
	if err != nil {
		return nil, err
	}
	c := &conversation{tree: t, depth: depth, model: m, ops: ops}
	c.messages = []Message{{"system", prompt(ops, t.opts.Limits)}, {"user", opening(query, bound)}}
	return c, nil
}

// run goes on until the final answer or a limit.
func (c *conversation) run(ctx context.Context) (string, error) {
	for c.turns < c.tree.opts.Limits.Turns {
		c.turns++
		said, err := c.tree.ask(ctx, c.model, c.messages)
		if err != nil {
			return "", err
		}
		move, err := ParseMove(said)
		if err == nil && move.Mode == ModeFinal {
			if text, err := c.final(move); err == nil {
				c.tell(move, "")
				return text, nil
			}
		}
		reply, err := c.reply(ctx, move, err)
		if err != nil {
			return "", err
		}
		c.tell(move, reply)
		c.messages = append(c.messages, Message{"assistant", said}, Message{"user", reply + c.left()})
	}
	return "", tool.Errorf(tool.Limit, "the model gave no final answer in %d turns", c.turns)
}

func (c *conversation) tell(move Move, reply string) {
	if c.tree.opts.OnTurn != nil {
		c.tree.opts.OnTurn(Turn{Depth: c.depth, Number: c.turns, Move: move, Reply: reply})
	}
}

// final is the answer in words, or the text of the binding that is the answer.
func (c *conversation) final(move Move) (string, error) {
	if move.Binding == "" {
		return move.Answer, nil
	}
	texts, err := c.ops.Bindings().take([]string{move.Binding})
	if err != nil {
		return "", err
	}
	return texts[0].s, nil
}

// reply makes a move, unless it was none. Its error ends the conversation; what a
// model did wrong is told to the model.
func (c *conversation) reply(ctx context.Context, move Move, problem error) (string, error) {
	if problem != nil {
		c.bad++
		if c.bad >= badMessages {
			return "", tool.Errorf(tool.Invalid, "the model broke the protocol %d times in a row: %s", c.bad, tool.AsError(problem).Message)
		}
		return "Your message was no move: " + tool.AsError(problem).Message + ". Answer with exactly one JSON object.", nil
	}
	c.bad = 0
	var said string
	var err error
	switch move.Mode {
	case ModeExplore:
		said, err = c.explore(ctx, move.Step)
	case ModeCommit:
		said, err = c.commit(ctx, move)
	default:
		_, err = c.final(move)
	}
	if err == nil {
		return said, nil
	}
	if ends(ctx, err) {
		return "", err
	}
	return "Error: " + tool.AsError(err).Error(), nil
}

// ends tells which errors a model can't do anything about.
func ends(ctx context.Context, err error) bool {
	kind := tool.KindOf(err)
	return ctx.Err() != nil || kind == tool.Unavailable || kind == tool.Internal || kind == tool.Closed
}

func (c *conversation) explore(ctx context.Context, step Step) (string, error) {
	if c.explored >= c.tree.opts.Limits.Explore {
		return "", tool.Errorf(tool.Limit, "no explore steps are left: commit, or give the final answer")
	}
	c.explored++
	if step.Bind == "" {
		step.Bind = fmt.Sprintf("step_%d", c.explored)
	}
	out, err := do(ctx, c.ops, step)
	if err != nil {
		return "", err
	}
	return c.show(out, step.Bind), nil
}

// do runs a pure operation or eval and binds its result.
func do(ctx context.Context, ops *Ops, step Step) (Outcome, error) {
	args, err := json.Marshal(step.Args)
	if err != nil {
		return Outcome{}, tool.Errorf(tool.Invalid, "args can't be read").In("args")
	}
	if step.Args == nil {
		args = nil
	}
	out, err := ops.Do(ctx, step.Op, args)
	if err != nil || out.Failure != "" {
		return out, err
	}
	_, err = ops.Bind(step.Bind, out.Result)
	return out, err
}

// show is what a model sees of a result.
func (c *conversation) show(out Outcome, name string) string {
	t := NewText(out.Result)
	text, cut := shown(t, shownToModel)
	if out.Failure != "" {
		failure, _ := shown(NewText(out.Failure), shownToModel)
		return "The code failed, nothing was bound.\n" + text + "\n" + failure
	}
	head := fmt.Sprintf("Bound to %s, %d characters", name, t.Chars())
	if cut {
		head += fmt.Sprintf(", of which the first %d are here", shownToModel)
	}
	return head + ":\n" + text
}

// commit runs the steps over a copy of the bindings. Only the output comes back;
// of a commit that fails, nothing.
func (c *conversation) commit(ctx context.Context, move Move) (string, error) {
	if c.commits >= c.tree.opts.Limits.Commits {
		return "", tool.Errorf(tool.Limit, "no commits are left: give the final answer")
	}
	c.commits++
	scratch := c.ops.fork()
	for i, step := range move.Steps {
		out, err := c.step(ctx, scratch, step)
		if err != nil {
			known := *tool.AsError(err)
			known.Message = fmt.Sprintf("step %d of the commit: %s; nothing was bound", i+1, known.Message)
			return "", &known
		}
		if out.Failure != "" {
			return c.show(out, step.Bind), nil
		}
	}
	texts, err := scratch.Bindings().take([]string{move.Output})
	if err != nil {
		return "", err
	}
	if _, err := c.ops.Bind(move.Output, texts[0].s); err != nil {
		return "", err
	}
	return c.show(Outcome{Result: texts[0].s}, move.Output), nil
}

// left tells the model what it may still do.
func (c *conversation) left() string {
	l := c.tree.opts.Limits
	if c.turns+1 >= l.Turns {
		return "\n\nThis is your last turn: give the final answer."
	}
	return fmt.Sprintf("\n\nLeft: %d explore steps, %d commits, %d turns.", l.Explore-c.explored, l.Commits-c.commits, l.Turns-c.turns)
}
