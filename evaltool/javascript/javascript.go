// Package javascript is the evaltool.Engine of the language javascript: a Node.js for each
// context, with a driver of wisbox's own, which keeps names and modules between evaluations.
// Its messages are those of the Python driver.
//
// As everywhere the container is the boundary: what the driver answers is hostile input.
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
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/internal/kept"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

//go:embed driver.js
var source string

// Options configure an Engine.
type Options struct {
	// Runner gives what runs programs, and makes it on first use. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
}

// Engine evaluates JavaScript in the session's sandbox. It may be used from many goroutines
// at once; evaluations in one context wait for each other.
type Engine struct {
	runner func(ctx context.Context) (sandbox.Runner, error)
	kept   *kept.Table[string, held]
	waits  []time.Duration // after each interrupt; nil is the usual ones
}

var (
	_ evaltool.Engine   = (*Engine)(nil)
	_ evaltool.Resetter = (*Engine)(nil)
)

// New makes an Engine. It starts nothing.
func New(opts *Options) *Engine {
	return &Engine{runner: opts.Runner, kept: kept.New[string](func(h *held) {
		if h.live != nil {
			h.live.Kill()
		}
	})}
}

// held is the interpreter of a context; live is nil before the first evaluation.
type held struct{ live *node }

// node is one Node.js. Its methods are called by one goroutine at a time.
type node struct {
	*interp.Process[*evaltool.Stream]
	count int64
}

const (
	maxMessage = 32 << 20 // bytes
	startWait  = 30 * time.Second
	readyID    = "ready"
)

// argv reads the driver from stdin. The checks that are switched off end a process whose
// code was ended in a timer.
var argv = []string{"node", "--no-force-async-hooks-checks", "--no-warnings", "-"}

func (e *Engine) start(ctx context.Context, req evaltool.Request) (*node, error) {
	r, err := e.runner(ctx)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	cmd := sandbox.Cmd{Argv: argv, Env: evaltool.Environ(req.ContextEnv), Stdin: strings.NewReader(source)}
	p, err := interp.Start(ctx, r, cmd, maxMessage, func() *evaltool.Stream { return &evaltool.Stream{Max: req.MaxOutput} })
	if err != nil {
		return nil, toolerr.Of(err)
	}
	n := &node{Process: p}
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

// Evaluate implements evaltool.Engine.
func (e *Engine) Evaluate(ctx context.Context, req evaltool.Request) (resp evaltool.Response, err error) {
	err = e.kept.Do(ctx, req.Context, func(ctx context.Context, h *held) error {
		var notes []string
		if h.live != nil && h.live.Ended() {
			h.live = nil
			notes = append(notes, "Node.js had ended since the last evaluation: its names are lost and a new one was started")
		}
		if h.live == nil {
			if h.live, err = e.start(ctx, req); err != nil {
				resp, err = evaltool.NotStarted(ctx, err)
				return err
			}
		}
		defer req.Feed.ReleaseAfter(ctx, req.Timeout)()
		var alive bool
		if resp, alive = h.live.evaluate(ctx, req, e.waits); !alive {
			h.live = nil
		}
		resp.Notes = append(notes, resp.Notes...)
		return nil
	})
	return resp, err
}

// request is a message to the driver.
type request struct {
	ID        string            `json:"id,omitempty"`
	Code      string            `json:"code"`
	Feed      bool              `json:"feed,omitempty"`
	Dir       string            `json:"dir,omitempty"` // of a new interpreter
	Env       map[string]string `json:"env,omitempty"`
	Interrupt string            `json:"interrupt,omitempty"` // the id of the evaluation that ends, alone
}

func (r request) encode() []byte {
	body, err := json.Marshal(r)
	if err != nil { // of texts alone: it can't be
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// evaluate is one evaluation; the bool is whether the names are still there.
func (n *node) evaluate(ctx context.Context, req evaltool.Request, waits []time.Duration) (evaltool.Response, bool) {
	r := request{ID: interp.Secret(), Code: req.Code, Feed: req.Feed != nil, Env: req.Env}
	if n.count == 0 {
		r.Dir = req.Dir
	}
	n.count++
	if feed := req.Feed; feed != nil {
		feed.Put(evaltool.Part{Count: n.count})
		n.Streams(func(stdout, stderr *evaltool.Stream) {
			stdout.Follow(feed.Stdout())
			stderr.Follow(feed.Stderr())
		})
	}
	var a driver.Answer
	answered, late := n.Ask(ctx, interp.Request{
		Message: bytes.NewReader(r.encode()), Timeout: req.Timeout, Divert: shown(r.ID, req.Feed), Release: req.Feed.Release,
		Interrupt: request{Interrupt: r.ID}.encode(), Waits: waits,
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
	resp.Stdout, resp.Count, resp.Fed = stdout.Text(), n.count, true
	return resp, answered
}

// shown passes on what the driver shows while the code runs.
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
		if n++; n > driver.MaxDisplays { // the driver's own are no more
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

// Cancel implements evaltool.Resetter.
func (e *Engine) Cancel(name string) { e.kept.Cancel(func(key string) bool { return key == name }) }

// Reset implements evaltool.Resetter.
func (e *Engine) Reset(ctx context.Context, name string) error {
	return e.kept.Reset(ctx, func(key string) bool { return key == name })
}

// Close implements evaltool.Resetter.
func (e *Engine) Close() error { return e.kept.Close() }
