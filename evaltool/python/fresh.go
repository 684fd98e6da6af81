package python

import (
	"context"
	"fmt"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// fresh evaluates in an interpreter that ends with the call.
func (e *Engine) fresh(ctx context.Context, req evaltool.Request) (evaltool.Response, error) {
	runner, err := e.runner(ctx)
	if err != nil {
		return evaltool.Response{}, toolerr.Of(err)
	}
	r := newRequest(req)
	in, err := r.encode(req.Reads)
	if err != nil {
		return evaltool.Response{}, err
	}
	var stdout, stderr evaltool.Stream
	out := interp.NewInbox(maxMessage)
	res, err := runner.Run(ctx, sandbox.Cmd{
		Python: program(), Stdout: &stdout, Stderr: &stderr, Timeout: req.Timeout,
		Capture: &sandbox.Capture{Forward: evaltool.StreamBytes},
		Control: &sandbox.Control{In: in, Out: out},
	})
	if err != nil {
		return evaltool.Response{}, toolerr.Of(err)
	}
	return freshResponse(r.ID, res, out.Take(), &stdout, &stderr)
}

// freshResponse puts together how the process ended and what it answered. The
// process has the last word: an answer counts only if its interpreter then ended
// by itself.
func freshResponse(id string, res sandbox.Result, message []byte, stdout, stderr *evaltool.Stream) (evaltool.Response, error) {
	resp := evaltool.Response{Status: string(res.Status), Stdout: stdout.Text(), Notes: res.Notices}
	a, err := parseAnswer(message, id)
	switch {
	case err == nil && a.Unsupported != "":
		return evaltool.Response{}, unsupported(a)
	case res.Status == sandbox.StatusTimedOut:
		resp.Stderr = stderr.TextWith(evaltool.TimeoutText)
	case err != nil:
		resp.Ended, resp.Stderr = true, stderr.Text()
		resp.Notes = append(resp.Notes, howEnded(res))
	case a.Status == evaltool.StatusException, res.Status != sandbox.StatusExited:
		resp.Stderr = stderr.TextWith(a.Traceback)
		if res.Status == sandbox.StatusExited {
			resp.Status = evaltool.StatusException
		}
	default:
		resp.Stderr = stderr.Text()
		fill(&resp, a)
	}
	return resp, nil
}

// fill takes over what a good answer holds.
func fill(resp *evaltool.Response, a answer) {
	resp.Status = evaltool.StatusExited
	resp.Value, resp.Names, resp.Writes = a.Value, a.Names, a.Writes
	resp.Globals, resp.Dropped, resp.Display = a.Globals, a.GlobalsDropped, a.shown()
	if a.DisplayDropped > 0 {
		resp.Notes = append(resp.Notes, fmt.Sprintf("%d displays were too large or too many and were left out", a.DisplayDropped))
	}
}

func howEnded(res sandbox.Result) string {
	switch res.Status {
	case sandbox.StatusExited:
		return fmt.Sprintf("the interpreter ended with exit code %d before the code did", res.ExitCode)
	case sandbox.StatusSignaled:
		return fmt.Sprintf("the interpreter was ended by signal %s", res.Signal)
	}
	return fmt.Sprintf("the interpreter was ended: %s", res.Status)
}

// unsupported says what the image lacks. The name is ours to choose: an answer
// could hold any.
func unsupported(a answer) error {
	if a.Unsupported != "asteval" {
		return tool.Errorf(tool.Unsupported, "this image lacks what the sandbox needs; use the sandbox container")
	}
	return tool.Errorf(tool.Unsupported, "this image has no asteval 1.0.6 or newer, which the sandbox restricted needs; "+
		"install the package python3-asteval (pip: asteval) in the image, or use the sandbox container").In("sandbox")
}
