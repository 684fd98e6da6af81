package rlm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/llm"
	"github.com/wisbox/wisbox/tool"
)

// Limits bound a run. 0 means the default, and a negative value means 0.
//
// After the last explore step, a conversation must commit: every further message counts as a
// commit unless it is a final answer. After the last commit the conversation ends, and its
// answer is the output of the last commit that succeeded.
type Limits struct {
	Explore  int // explore steps of one conversation, default 20
	Commits  int // commits of one conversation, default 5
	Depth    int // levels of conversations below the first, default 1
	Turns    int // messages of one conversation, default 40
	Calls    int // messages of all models together, default 500
	Parallel int // questions of one map at a time, default 4
}

// Limits that no option changes.
const (
	shownToModel = 8_000   // characters of a result that a model is shown
	directChars  = 100_000 // characters of the context of a direct call
	badMessages  = 3       // in a row end a conversation
)

func (l Limits) orDefaults() Limits {
	for _, f := range []struct {
		value *int
		def   int
	}{{&l.Explore, 20}, {&l.Commits, 5}, {&l.Depth, 1}, {&l.Turns, 40}, {&l.Calls, 500}, {&l.Parallel, 4}} {
		if *f.value == 0 {
			*f.value = f.def
		}
		*f.value = max(0, *f.value)
	}
	l.Parallel = max(1, l.Parallel)
	return l
}

// RunOptions configure a run.
type RunOptions struct {
	Query   string    // required
	Context string    // bound to context
	Model   llm.Model // required
	Child   llm.Model // of rlm_call and map; nil means Model
	Limits  Limits
	// Ops are the options of the operations: evaluator, cache, sizes. Files is not used.
	Ops Options
	// OnTurn gets every message of a conversation, OnOperation every
	// operation when it ends: an explore's, or one of a commit's. Both are called
	// from several goroutines at once and may be nil.
	OnTurn      func(Turn)
	OnOperation func(Operation)
}

// Turn is one message of a conversation and its outcome.
type Turn struct {
	Depth  int
	Number int // from 1
	Move   Move
	Err    error  // the error of the message or its move
	Reply  string // the answer to the model, "" after a final
}

// Operation is an operation that ran for a model.
type Operation struct {
	Depth, Turn int
	Mode        string
	Step        Step
	Chars       int // of the result
	Cached      bool
	Took        time.Duration
	Err         error  // the reason for a missing result
	Failure     string // of eval: the code's error
}

// Answer is the result of a successful run.
type Answer struct {
	Text     string `json:"answer"`
	Turns    int    `json:"turns"` // of the first conversation
	Explored int    `json:"explored"`
	Commits  int    `json:"commits"`
	Calls    int    `json:"calls"` // messages of all models
	// CutBy names the limit that ended the run: commits, turns or calls. The answer then is
	// the output of the last commit. It is "" after a final answer.
	CutBy string `json:"cut_by,omitempty"`
}

// Run asks a model a question about a text, which the model sees only through operations. It
// always ends: turns of a conversation, the depth of nested conversations and the calls of all
// of them are bounded. Errors are *tool.Error: limit if no answer came within the limits,
// invalid if the model broke the protocol again and again, unavailable if it could not be
// reached.
func Run(ctx context.Context, opts *RunOptions) (Answer, error) {
	if opts.Model == nil || strings.TrimSpace(opts.Query) == "" {
		return Answer{}, tool.Errorf(tool.Invalid, "a run needs a query and a model; give both").In("query")
	}
	t := &tree{opts: *opts}
	t.opts.Limits = opts.Limits.orDefaults()
	t.opts.Ops.room = newRoom(opts.Ops.MaxTotal)
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
	return Answer{Text: text, Turns: c.turns, Explored: c.explored, Commits: c.commits, Calls: int(t.calls.Load()), CutBy: c.cutBy}, nil
}

// tree is a run: the first conversation and all below it.
type tree struct {
	opts  RunOptions
	calls atomic.Int64
}

// ask sends the messages to a model and returns its answer.
func (t *tree) ask(ctx context.Context, m llm.Model, messages []llm.Message) (string, error) {
	if t.calls.Add(1) > int64(t.opts.Limits.Calls) {
		t.calls.Add(-1)
		return "", tool.Errorf(tool.Limit, "the run has used all of its %d calls of models; raise the limit, or ask a smaller question", t.opts.Limits.Calls)
	}
	return m.Complete(ctx, messages)
}

// conversation is one model at work on one text.
type conversation struct {
	tree     *tree
	depth    int
	model    llm.Model
	ops      *Ops
	messages []llm.Message

	turns, explored, commits, bad int

	cycles int     // commits, and other messages that count as one
	output *string // of the last commit that succeeded
	cutBy  string
}

func (t *tree) conversation(depth int, m llm.Model, query, text string) (*conversation, error) {
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
	c.messages = []llm.Message{{Role: llm.System, Content: prompt(ops, t.opts.Limits)}, {Role: llm.User, Content: opening(query, bound)}}
	return c, nil
}

// Limits that cut a conversation.
const (
	byCommits = "commits"
	byTurns   = "turns"
	byCalls   = "calls"
)

// committing reports whether the explore steps are used up.
func (c *conversation) committing() bool { return c.explored >= c.tree.opts.Limits.Explore }

// over returns the name of the limit that the conversation has reached, or "".
func (c *conversation) over() string {
	switch l := c.tree.opts.Limits; {
	case c.cycles >= max(1, l.Commits): // if there are no commits, one message is left for the answer
		return byCommits
	case c.turns >= l.Turns:
		return byTurns
	}
	return ""
}

// cut ends a conversation at a limit and returns the output of its last commit.
func (c *conversation) cut(limit string) (string, error) {
	if c.output == nil {
		return "", tool.Errorf(tool.Limit, "the model gave no final answer within the limit on %s, and none of its commits succeeded; raise the limit, or ask a smaller question", limit)
	}
	c.cutBy = limit
	return *c.output, nil
}

// run continues the conversation until the final answer or a limit.
func (c *conversation) run(ctx context.Context) (string, error) {
	for c.over() == "" {
		said, err := c.tree.ask(ctx, c.model, c.messages)
		if tool.KindOf(err) == tool.Limit {
			return c.cutByCalls(err)
		}
		if err != nil {
			return "", err
		}
		c.turns++
		committing := c.committing()
		move, problem := ParseMove(said)
		if problem == nil && move.Mode == ModeFinal {
			text, err := c.final(move)
			if err == nil {
				c.tell(move, nil, "")
				return text, nil
			}
		}
		if committing || move.Mode == ModeCommit {
			c.cycles++
		}
		reply, err := c.reply(ctx, move, problem)
		if err != nil {
			return "", err
		}
		c.messages = append(c.messages, llm.Message{Role: llm.Assistant, Content: said}, llm.Message{Role: llm.User, Content: reply + c.left()})
	}
	return c.cut(c.over())
}

func (c *conversation) cutByCalls(err error) (string, error) {
	if c.output == nil {
		return "", err
	}
	return c.cut(byCalls)
}

func (c *conversation) tell(move Move, err error, reply string) {
	if c.tree.opts.OnTurn != nil {
		c.tree.opts.OnTurn(Turn{Depth: c.depth, Number: c.turns, Move: move, Err: err, Reply: reply})
	}
}

// timed runs an operation and reports its outcome.
func (c *conversation) timed(mode string, step Step, run func() (Outcome, error)) (Outcome, error) {
	start := time.Now()
	out, err := run()
	if c.tree.opts.OnOperation != nil {
		c.tree.opts.OnOperation(Operation{
			Depth: c.depth, Turn: c.turns, Mode: mode, Step: step, Chars: NewText(out.Result).Chars(), Cached: out.Cached,
			Took: time.Since(start), Err: err, Failure: out.Failure,
		})
	}
	return out, err
}

// final returns the answer: words, or the text of a binding.
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

// reply makes a move, if the message was one. An error ends the conversation; errors of the
// model are reported to the model instead.
func (c *conversation) reply(ctx context.Context, move Move, problem error) (string, error) {
	if problem == nil && move.Mode == ModeFinal {
		_, problem = c.final(move) // it failed: a final that succeeds has no reply
	}
	if problem != nil {
		c.bad++
		if c.bad >= badMessages {
			return "", tool.Errorf(tool.Invalid, "the model broke the protocol %d times in a row: %s", c.bad, tool.AsError(problem).Message)
		}
		reply := "Your message was not a move: " + tool.AsError(problem).Message + ". Answer with exactly one JSON object."
		if move.Mode == ModeFinal {
			reply = "Error: " + tool.AsError(problem).Error()
		}
		c.tell(move, problem, reply)
		return reply, nil
	}
	c.bad = 0
	var said string
	var err error
	if move.Mode == ModeExplore {
		said, err = c.explore(ctx, move.Step)
	} else {
		said, err = c.commit(ctx, move)
	}
	if ends(ctx, err) {
		return "", err
	}
	if err != nil {
		said = "Error: " + tool.AsError(err).Error()
	}
	c.tell(move, err, said)
	return said, nil
}

// ends reports whether an error ends a run, because a model can't do anything about it.
func ends(ctx context.Context, err error) bool {
	kind := tool.KindOf(err)
	return err != nil && ctx.Err() != nil || kind == tool.Unavailable || kind == tool.Internal || kind == tool.Closed
}

func (c *conversation) explore(ctx context.Context, step Step) (string, error) {
	run := func() (Outcome, error) { return do(ctx, c.ops, step) }
	if c.committing() {
		run = func() (Outcome, error) {
			return Outcome{}, tool.Errorf(tool.Limit, "no explore steps are left: commit, or give the final answer")
		}
	} else if c.explored++; step.Bind == "" {
		step.Bind = fmt.Sprintf("step_%d", c.explored)
	}
	out, err := c.timed(ModeExplore, step, run)
	if err != nil {
		return "", err
	}
	return c.show(out, step.Bind), nil
}

// do runs a pure operation or eval and binds its result.
func do(ctx context.Context, ops *Ops, step Step) (Outcome, error) {
	args, err := json.Marshal(step.Args)
	if err != nil {
		return Outcome{}, tool.Errorf(tool.Invalid, "args has a value that JSON can't hold; use text, numbers, lists and objects").In("args")
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

// show returns the part of a result that a model sees.
func (c *conversation) show(out Outcome, name string) string {
	t := NewText(out.Result)
	text, cut := t.first(shownToModel)
	if out.Failure != "" {
		failure, _ := NewText(out.Failure).first(shownToModel)
		return "The code failed; nothing was bound.\n" + text + "\n" + failure
	}
	head := fmt.Sprintf("Bound to %s, %d characters", name, t.Chars())
	if cut {
		head += fmt.Sprintf(", of which the first %d are here", shownToModel)
	}
	for _, note := range out.Notes {
		head = "Note: " + note + ".\n" + head
	}
	return head + ":\n" + text
}

// commit runs the steps over a copy of the bindings. Only the output comes back, and nothing
// if the commit fails.
func (c *conversation) commit(ctx context.Context, move Move) (string, error) {
	if c.commits >= c.tree.opts.Limits.Commits {
		return "", tool.Errorf(tool.Limit, "this run has no commits; give the final answer")
	}
	c.commits++
	scratch := c.ops.fork()
	defer scratch.release()
	for i, step := range move.Steps {
		out, err := c.timed(ModeCommit, step, func() (Outcome, error) { return c.step(ctx, scratch, step) })
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
	scratch.release() // the output is charged separately
	if _, err := c.ops.Bind(move.Output, texts[0].s); err != nil {
		return "", err
	}
	c.output = &texts[0].s
	return c.show(Outcome{Result: texts[0].s}, move.Output), nil
}

// left returns the model's remaining moves, in words.
func (c *conversation) left() string {
	l := c.tree.opts.Limits
	switch {
	case c.turns+1 >= l.Turns:
		return "\n\nThis is your last turn: give the final answer."
	case c.committing() && c.cycles+1 >= l.Commits:
		return "\n\nNo explore steps are left, and this is your last message: give the final answer, or commit to a program whose output is the answer."
	case c.committing():
		return fmt.Sprintf("\n\nNo explore steps are left: commit, or give the final answer. Left: %d commits.", l.Commits-c.cycles)
	}
	return fmt.Sprintf("\n\nLeft: %d explore steps, %d commits, %d turns.", l.Explore-c.explored, l.Commits-c.cycles, l.Turns-c.turns)
}
