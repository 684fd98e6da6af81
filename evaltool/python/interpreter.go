package python

import (
	"context"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/internal/keeper"
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/sandbox"
)

// interpreter is a kept interpreter.
type interpreter struct{ *keeper.Process }

// Evaluate implements keeper.Interpreter.
func (i *interpreter) Evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, bool, error) {
	r := newRequest(req)
	r.Interrupts = i.Interrupts()
	if i.Count == 0 {
		r.Dir = req.Dir
	}
	message, err := r.encode(req.Reads)
	if err != nil {
		return evaltool.Response{}, true, err
	}
	i.Begin(req.Feed)
	var a driver.Answer
	answered, late := i.Ask(ctx, interp.Request{
		Message: message, Timeout: req.Timeout, Divert: r.told(req.Feed), Release: req.Feed.Release,
		Accept: func(message []byte) bool { a, err = parseAnswer(message, r.ID); return err == nil },
	})
	stdout, stderr := i.Output()
	resp := i.respond(a, answered, late, stderr)
	resp.Stdout, resp.Fed = stdout.Text(), true
	return resp, answered, nil
}

// respond makes the Response from the answer, without Stdout.
func (i *interpreter) respond(a driver.Answer, answered bool, late sandbox.Status, stderr *evaltool.Stream) evaltool.Response {
	resp := evaltool.Response{Status: string(late), Stderr: stderr.Text()}
	switch {
	case late == sandbox.StatusTimedOut:
		resp.Stderr = stderr.TextWith(evaltool.TimeoutText)
		fallthrough
	case late != "":
		a.FillShown(&resp)
		resp.Raised = nil // the interrupt is ours
		resp.Notes, resp.Writes = append(resp.Notes, fate(answered)), a.Writes
	case !answered:
		res := i.Result()
		resp.Status, resp.Ended = string(res.Status), true
		resp.Notes = append([]string{howEnded(res)}, res.Notices...)
		resp.Notes = append(resp.Notes, "the names of the kept interpreter are lost, the next call starts a new one")
	case a.Status == evaltool.StatusExited:
		resp.Status = evaltool.StatusExited
		a.Fill(&resp)
	default:
		resp.Status, resp.Stderr = evaltool.StatusException, stderr.TextWith(a.Traceback)
		a.FillFailed(&resp)
	}
	return resp
}

func fate(alive bool) string {
	if alive {
		return "the names of the kept interpreter are still there"
	}
	return "the code could not be interrupted, so its interpreter was ended: its names are lost, the next call starts a new one"
}
