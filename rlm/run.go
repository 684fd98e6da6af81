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

// Limits bound a run. A value of 0 is the default, a negative one is 0.
//
// After the last explore step a conversation is committing: every further message
// is a commit or, like whatever else it is but a final answer, counted as one.
// After the last commit the conversation is done, and the output of the last one
// that did not fail is its answer.
type Limits struct {
	Explore  int // explore steps of one conversation, default 20
	Commits  int // commits of one conversation, default 5
	Depth    int // conversations below conversations, default 1
	Turns    int // messages of one conversation, default 40
	Calls    int // messages of all models together, default 500
	Parallel int // models that one map asks at once, default 4
}

// The limits that no option changes.
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
	Child   llm.Model // of rlm_call and map; nil is Model
	Limits  Limits
	// Ops are those of the operations: evaluator, cache, sizes. Files are not used.
	Ops Options
	// OnTurn gets every message of a conversation, OnOperation every
	// operation when it ends: an explore's, or one of a commit's. Both are called
	// from several goroutines at once and may be nil.
	OnTurn      func(Turn)
	OnOperation func(Operation)
}

// Turn is one message of a conversation and what came of it.
type Turn struct {
	Depth  int
	Number int // from 1
	Move   Move
	Err    error  // what was wrong with the message or its move
	Reply  string // what the model is told, "" after a final
}

// Operation is one that was run for a model.
type Operation struct {
	Depth, Turn int
	Mode        string
	Step        Step
	Chars       int // of the result
	Cached      bool
	Took        time.Duration
	Err         error  // why there is no result
	Failure     string // of eval: what the code did wrong
}

// Answer is how a run ended well.
type Answer struct {
	Text     string `json:"answer"`
	Turns    int    `json:"turns"` // of the first conversation
	Explored int    `json:"explored"`
	Commits  int    `json:"commits"`
	Calls    int    `json:"calls"` // messages of all models
	// CutBy names the limit that ended the run with the output of its last commit
	// for an answer: commits, turns or calls. It is "" after a final answer.
	CutBy string `json:"cut_by,omitempty"`
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

// ask is one message of a model.
func (t *tree) ask(ctx context.Context, m llm.Model, messages []llm.Message) (string, error) {
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
	model    llm.Model
	ops      *Ops
	messages []llm.Message

	turns, explored, commits, bad int

	cycles int     // commits, and what came instead of them while committing
	output *string // of the last commit that did not fail
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

// The limits that cut a conversation.
const (
	byCommits = "commits"
	byTurns   = "turns"
	byCalls   = "calls"
)

// committing reports whether no explore steps are left.
func (c *conversation) committing() bool { return c.explored >= c.tree.opts.Limits.Explore }

// over names the limit that the conversation has come to, or is "".
func (c *conversation) over() string {
	switch l := c.tree.opts.Limits; {
	case c.cycles >= max(1, l.Commits): // without commits there is one message more, for the answer
		return byCommits
	case c.turns >= l.Turns:
		return byTurns
	}
	return ""
}

// cut ends a conversation at a limit: with the output of its last commit.
func (c *conversation) cut(limit string) (string, error) {
	if c.output == nil {
		return "", tool.Errorf(tool.Limit, "the model gave no final answer, and no commit of its that succeeded, within the limit on %s; raise it, or ask something smaller", limit)
	}
	c.cutBy = limit
	return *c.output, nil
}

// run goes on until the final answer or a limit.
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

// timed runs an operation and reports what came of it.
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
	if problem == nil && move.Mode == ModeFinal {
		_, problem = c.final(move) // it failed, or there would be no reply
	}
	if problem != nil {
		c.bad++
		if c.bad >= badMessages {
			return "", tool.Errorf(tool.Invalid, "the model broke the protocol %d times in a row: %s", c.bad, tool.AsError(problem).Message)
		}
		reply := "Your message was no move: " + tool.AsError(problem).Message + ". Answer with exactly one JSON object."
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

// ends reports which errors a model can't do anything about.
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
	text, cut := t.first(shownToModel)
	if out.Failure != "" {
		failure, _ := NewText(out.Failure).first(shownToModel)
		return "The code failed, nothing was bound.\n" + text + "\n" + failure
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

// commit runs the steps over a copy of the bindings. Only the output comes back;
// of a commit that fails, nothing.
func (c *conversation) commit(ctx context.Context, move Move) (string, error) {
	if c.commits >= c.tree.opts.Limits.Commits {
		return "", tool.Errorf(tool.Limit, "there are no commits in this run: give the final answer")
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
	scratch.release() // the output has room of its own
	if _, err := c.ops.Bind(move.Output, texts[0].s); err != nil {
		return "", err
	}
	c.output = &texts[0].s
	return c.show(Outcome{Result: texts[0].s}, move.Output), nil
}

// left tells the model what it may still do.
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
