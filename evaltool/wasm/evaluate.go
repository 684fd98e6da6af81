package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/tool"
)

// The private file system of an evaluation.
const (
	dirWorkspace = "workspace" // directory where it starts; contains the files of reads
	dirTemp      = "tmp"
	dirPrivate   = ".wisbox" // the driver's
	dirInputs    = dirPrivate + "/in"
	dirHost      = dirPrivate + "/host" // represents the workspace of the host
	dirList      = dirPrivate + "/list" // likewise; its files are listings of directories

	fileBoot    = dirPrivate + "/boot.py"
	fileRequest = dirPrivate + "/request"
	fileAnswer  = dirPrivate + "/answer"

	filesRoom = 32 << 20 // bytes that the code may write there
)

// request is the driver's input; the texts of reads are files.
type request struct {
	ID      string            `json:"id"`
	Code    string            `json:"code"`
	Globals map[string]string `json:"globals"`
	Reads   map[string]string `json:"reads"` // name to file with the text
	Fields  []string          `json:"fields"`
	Eval    bool              `json:"eval"`
	Real    bool              `json:"real"` // reseed the random numbers

	Restricted bool `json:"restricted"`

	Env map[string]string `json:"env,omitempty"`
}

// task is one evaluation, for either contract.
type task struct {
	request        request
	reads          []evaltool.File
	inWorkspace    bool // reads are files of the workspace too
	fuel, memory   int64
	timeout        time.Duration
	stdout, stderr io.Writer
}

// outcome is its result. answer is nil unless the driver finished.
type outcome struct {
	*ran
	answer *driver.Answer
}

// Evaluate implements evaltool.Engine.
func (s *Session) Evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, error) {
	e := s.engine
	fuel, memory, err := e.limits(req)
	if err != nil {
		return evaltool.Response{}, err
	}
	stdout, stderr := evaltool.Stream{Max: req.MaxOutput}, evaltool.Stream{Max: req.MaxOutput}
	t := &task{
		request: request{ID: "evaluate", Code: req.Code, Globals: req.Globals, Fields: req.Fields, Env: req.Env, Restricted: req.Sandbox == evaltool.SandboxRestricted},
		reads:   req.Reads, inWorkspace: true,
		fuel: fuel, memory: memory, timeout: req.Timeout, stdout: &stdout, stderr: &stderr,
	}
	if feed := req.Feed; feed != nil {
		stdout.Follow(feed.Stdout())
		stderr.Follow(feed.Stderr())
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return evaltool.Response{}, err
	}
	defer leave()
	python, err := e.load(ctx)
	if err != nil {
		return evaltool.Response{}, err
	}
	if req.Kept {
		return s.evaluateKept(ctx, python, req, t, &stdout, &stderr)
	}
	defer req.Feed.ReleaseAfter(ctx, req.Timeout)()
	out, err := python.evaluate(ctx, t, python.image, s.workspace(), nil)
	if err != nil {
		return evaltool.Response{}, err
	}
	return respond(t, out, &stdout, &stderr), nil
}

// limits returns the limits of the call, within the engine's.
func (e *Engine) limits(req evaltool.Request) (fuel, memory int64, err error) {
	if req.Fuel > e.opts.Fuel {
		return 0, 0, tool.Errorf(tool.Invalid, "fuel is %d; the maximum is %d", req.Fuel, e.opts.Fuel).In("fuel")
	}
	if req.Memory > e.opts.Memory {
		return 0, 0, tool.Errorf(tool.Invalid, "memory is %d bytes; the maximum is %d", req.Memory, e.opts.Memory).In("memory")
	}
	return orDefault(req.Fuel, e.opts.Fuel), orDefault(req.Memory, e.opts.Memory), nil
}

func newWorkspace() *memoryFiles { return newFiles(filesRoom, dirWorkspace, dirTemp, dirPrivate) }

// evaluate runs a task from an image. keep, if set, gets the memory of a driver that finished.
func (i *interpreter) evaluate(ctx context.Context, t *task, from *image, files *memoryFiles, keep func(memory []byte) error) (*outcome, error) {
	t.request.Real = i.real
	if err := t.give(files); err != nil {
		return nil, err
	}
	files.begin()
	defer files.remove(dirPrivate)
	memory, err := from.mapRegion(int(t.memory))
	if err != nil {
		return nil, tool.Errorf(tool.Unavailable, "there is no memory for another evaluation").Because(err)
	}
	defer memory.unmap()
	ran, err := i.run(ctx, &job{
		memory: memory, from: from, stack: i.entry.Stack, function: i.entry.Slot, object: i.entry.Object,
		files: files, stdout: t.stdout, stderr: t.stderr, fuel: t.fuel, timeout: t.timeout, real: i.real,
	})
	if err != nil {
		return nil, tool.AsError(err)
	}
	out := &outcome{ran: ran}
	if ran.finished() {
		out.answer = parseAnswer(files.content(fileAnswer))
	}
	if out.answer != nil && keep != nil {
		err = keep(ran.memory)
	}
	ran.memory = nil
	return out, err
}

func (r *ran) finished() bool { return r.stopped == nil && r.crashed == nil && !r.exited }

// give writes the request and the texts to files.
func (t *task) give(files *memoryFiles) error {
	files.give(dirPrivate, &node{dir: true})
	t.request.Reads = map[string]string{}
	for n, f := range t.reads {
		name := fmt.Sprintf("%s/%d", dirInputs, n)
		files.give(name, &node{text: f.Text})
		t.request.Reads[f.Path] = "/" + name
		if t.inWorkspace {
			files.give(dirWorkspace+"/"+f.Path, &node{text: f.Text})
		}
	}
	if t.request.Globals == nil {
		t.request.Globals = map[string]string{}
	}
	if t.request.Fields == nil {
		t.request.Fields = []string{}
	}
	raw, err := json.Marshal(t.request)
	if err != nil {
		return err
	}
	files.give(fileRequest, &node{text: string(raw)})
	return nil
}

// respond builds the Response. An answer counts only if the driver finished.
func respond(t *task, out *outcome, stdout, stderr *evaltool.Stream) evaltool.Response {
	resp := evaltool.Response{Status: evaltool.StatusExited, Stdout: stdout.Text(), Stderr: stderr.Text()}
	a := out.answer
	switch {
	case out.stopped != nil && !errors.Is(out.stopped, errCancel):
		resp.Status, resp.Stderr = evaltool.StatusTimedOut, stderr.TextWith(evaltool.TimeoutText)
		resp.Notes = append(resp.Notes, out.why(t))
	case out.stopped != nil:
		resp.Status = evaltool.StatusCancelled
	case a == nil:
		resp.Ended = true
		resp.Notes = append(resp.Notes, out.why(t))
	case a.Status == evaltool.StatusException:
		resp.Status, resp.Stderr = a.Status, stderr.TextWith(a.Traceback)
		a.FillFailed(&resp)
	default:
		a.Fill(&resp)
	}
	return resp
}

// trapOf returns WebAssembly's own description of a crash. Other errors may contain texts of Go.
func trapOf(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	trap, ok := strings.CutPrefix(first, "wasm error: ")
	if !ok || strings.Contains(trap, "runtime error") {
		return ""
	}
	return ": " + strings.TrimSuffix(trap, " (recovered by wazero)")
}

// why describes the end of an evaluation that didn't finish.
func (o *outcome) why(t *task) string {
	switch {
	case errors.Is(o.stopped, errFuel):
		return fmt.Sprintf("the fuel of %d units was used up", t.fuel)
	case errors.Is(o.stopped, errLate):
		return fmt.Sprintf("the time of %v was over", t.timeout)
	case o.stopped != nil:
		return o.stopped.Error()
	case o.exited:
		return fmt.Sprintf("the interpreter ended with exit code %d before the code did", o.exitCode)
	case o.crashed != nil:
		return "the interpreter crashed" + trapOf(o.crashed)
	}
	return "the interpreter gave no answer that makes sense"
}
