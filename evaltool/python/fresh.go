package python

import (
	"context"
	"errors"
	"fmt"
	"io"

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
		return evaltool.NotStarted(ctx, toolerr.Of(err))
	}
	r := newRequest(req)
	in, err := r.encode(req.Reads)
	if err != nil {
		return evaltool.Response{}, err
	}
	stdout, stderr := evaltool.Stream{Max: req.MaxOutput}, evaltool.Stream{Max: req.MaxOutput}
	forward := evaltool.StreamBytes(max(req.MaxOutput, evaltool.StreamChars))
	out := interp.NewInbox(maxMessage)
	cmd := sandbox.Cmd{
		Python: program(), Stdout: &stdout, Stderr: &stderr, Timeout: req.Timeout,
		Capture: &sandbox.Capture{Forward: forward},
		Control: &sandbox.Control{In: in, Out: out},
	}
	if feed := req.Feed; feed != nil {
		more, replies := io.Pipe()
		defer more.Close()
		cmd.Control.In = io.MultiReader(in, more)
		told := r.told(feed)
		out.Divert(func(message []byte) bool {
			reply, taken := told(message)
			if reply != nil {
				interp.Reply(replies, reply)
			}
			return taken
		})
		feed.Put(evaltool.Part{Count: 1})
		stdout.Follow(feed.Stdout())
		stderr.Follow(feed.Stderr())
		cmd.Capture = nil
		defer feed.ReleaseAfter(ctx, req.Timeout)()
	}
	res, err := runner.Run(ctx, cmd)
	if err != nil {
		return evaltool.NotStarted(ctx, noPython(err))
	}
	resp := freshResponse(r.ID, res, out.Take(), &stdout, &stderr)
	resp.Fed = true
	return resp, nil
}

// noPython returns the error of a sandbox that could not start an evaluation.
func noPython(err error) error {
	if errors.Is(err, sandbox.ErrUnsupported) || tool.KindOf(err) == tool.Unsupported {
		return tool.Errorf(tool.Unsupported, "this image can't evaluate Python, for which it needs python3 of version 3.9 or newer; use the sandbox wasm, or another image").Because(err)
	}
	return toolerr.Of(err)
}

// freshResponse combines the end of the process and its answer. The answer counts only if the interpreter then ended by
// itself.
func freshResponse(id string, res sandbox.Result, message []byte, stdout, stderr *evaltool.Stream) evaltool.Response {
	resp := evaltool.Response{Status: string(res.Status), Stdout: stdout.Text(), Notes: res.Notices}
	a, err := parseAnswer(message, id)
	switch {
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
		a.FillFailed(&resp)
	default:
		resp.Stderr = stderr.Text()
		resp.Status = evaltool.StatusExited
		a.Fill(&resp)
	}
	return resp
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
