// Package javascript is the evaltool.Engine of the language javascript. It runs a Node.js process
// for each context, with a driver that keeps names and modules between evaluations. Its messages
// have the form of the Python driver's.
//
// As everywhere, the container is the boundary: the driver's answers are hostile input.
package javascript

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/internal/keeper"
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

//go:embed driver.js
var source string

// Options configure an Engine.
type Options struct {
	// Runner returns the runner of programs, and creates it on first use. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
}

// Engine evaluates JavaScript in the session's sandbox. Its methods may be called concurrently; evaluations in one
// context wait for each other.
type Engine struct {
	*keeper.Keeper

	runner func(ctx context.Context) (sandbox.Runner, error)
	waits  []time.Duration // after each interrupt; nil means the default
}

var (
	_ evaltool.Engine   = (*Engine)(nil)
	_ evaltool.Resetter = (*Engine)(nil)
)

// New returns an Engine. It starts nothing.
func New(opts *Options) *Engine {
	e := &Engine{runner: opts.Runner}
	e.Keeper = keeper.New(&keeper.Options{Start: e.start, Lost: "Node.js had ended since the last evaluation: its names are lost and a new one was started"})
	return e
}

// node is one Node.js.
type node struct {
	*keeper.Process
	waits []time.Duration
}

const (
	maxMessage = 32 << 20 // bytes
	readyID    = "ready"
)

var startWait = patience.For(30 * time.Second)

// argv reads the driver from stdin. It disables checks that would end a process whose code was ended in a timer.
var argv = []string{"node", "--no-force-async-hooks-checks", "--no-warnings", "-"}

func (e *Engine) start(ctx context.Context, req evaltool.Request) (keeper.Interpreter, error) {
	p, err := keeper.Start(ctx, e.runner, sandbox.Cmd{Argv: argv, Stdin: strings.NewReader(source)}, maxMessage, req)
	if err != nil {
		return nil, err
	}
	n := &node{p, e.waits}
	ready, _ := n.Await(ctx, startWait, func(message []byte) bool {
		a, err := driver.ParseAnswer(message)
		return err == nil && a.ID == readyID
	})
	if ready {
		return n, nil
	}
	n.Kill()
	return nil, n.notStarted(ctx)
}

func (n *node) notStarted(ctx context.Context) error {
	res := n.Result()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case res.Status == sandbox.StatusExited && res.ExitCode == sandbox.ExitNotFound:
		return tool.Errorf(tool.Unsupported, "this image has no Node.js: make one with `wisbox image build --with node`, and open a session with it").In("language")
	case res.Status == sandbox.StatusExited:
		return tool.Errorf(tool.Unsupported, "the Node.js of this image does not start (exit code %d); it must be version 18 or later", res.ExitCode).In("language")
	}
	return tool.Errorf(tool.Unavailable, "Node.js did not start (%s); give the session more memory, or call again", res.Status)
}

// request is a message to the driver.
type request struct {
	ID        string            `json:"id,omitempty"`
	Code      string            `json:"code"`
	Feed      bool              `json:"feed,omitempty"`
	Dir       string            `json:"dir,omitempty"` // of a new interpreter
	Env       map[string]string `json:"env,omitempty"`
	Interrupt string            `json:"interrupt,omitempty"` // the ID of the evaluation to interrupt; then no other field is set
}

func (r request) encode() []byte {
	body, err := json.Marshal(r)
	if err != nil { // never: all fields are texts
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// Evaluate implements keeper.Interpreter.
func (n *node) Evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, bool, error) {
	r := request{ID: interp.Secret(), Code: req.Code, Feed: req.Feed != nil, Env: req.Env}
	if n.Count == 0 {
		r.Dir = req.Dir
	}
	n.Begin(req.Feed)
	var a driver.Answer
	answered, late := n.Ask(ctx, interp.Request{
		Message: bytes.NewReader(r.encode()), Timeout: req.Timeout, Divert: shown(r.ID, req.Feed), Release: req.Feed.Release,
		Interrupt: request{Interrupt: r.ID}.encode(), Waits: n.waits,
		Accept: func(message []byte) bool {
			said, err := driver.ParseAnswer(message)
			if err == nil && said.ID == r.ID {
				a = said
			}
			return err == nil && said.ID == r.ID
		},
	})
	stdout, stderr := n.Output()
	resp := n.respond(a, answered, late, stderr)
	resp.Stdout, resp.Count, resp.Fed = stdout.Text(), n.Count, true
	return resp, answered, nil
}

// shown passes on objects that the driver shows while the code runs.
func shown(id string, feed *evaltool.Feed) func(message []byte) (reply []byte, taken bool) {
	if feed == nil {
		return nil
	}
	n := 0
	return func(message []byte) ([]byte, bool) {
		object, ok := driver.ParseEvent(message, id)
		if !ok {
			return nil, false
		}
		if n++; n > driver.MaxDisplays { // the driver itself sends no more
			return nil, true
		}
		if object != nil {
			feed.Put(evaltool.Part{Shown: object})
		}
		return make([]byte, 4), true // the driver waits for it
	}
}

func (n *node) respond(a driver.Answer, answered bool, late sandbox.Status, stderr *evaltool.Stream) evaltool.Response {
	resp := evaltool.Response{Status: string(late), Stderr: stderr.Text()}
	switch {
	case late != "":
		if late == sandbox.StatusTimedOut {
			resp.Stderr = stderr.TextWith(evaltool.TimeoutText)
		}
		a.FillShown(&resp)
		resp.Raised = nil // the interrupt is ours
		resp.Notes = append(resp.Notes, fate(answered))
	case !answered:
		res := n.Result()
		resp.Status, resp.Ended = string(res.Status), true
		resp.Notes = slices.Concat(res.Notices, []string{fmt.Sprintf("Node.js ended with exit code %d: its names are lost, the next evaluation starts a new one", res.ExitCode)})
	case a.Status == evaltool.StatusExited:
		resp.Status, resp.Value = evaltool.StatusExited, a.Value
		a.FillShown(&resp)
	default:
		resp.Status, resp.Stderr = evaltool.StatusException, stderr.TextWith(a.Traceback)
		a.FillShown(&resp)
	}
	return resp
}

func fate(alive bool) string {
	if alive {
		return "the names of the context are still there"
	}
	return "the code could not be interrupted, so Node.js was ended: its names are lost, the next evaluation starts a new one"
}

// Guidance implements evaltool.Engine.
func (e *Engine) Guidance() string { return "" }
