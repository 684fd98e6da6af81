package python

import (
	"context"
	"io"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/framed"
	"github.com/wisbox/wisbox/sandbox"
)

// How an evaluation that must stop is stopped: it is interrupted a few times,
// because code may catch the first, and then its interpreter is killed.
const (
	interrupts    = 4
	interruptWait = 250 * time.Millisecond
	// streamWait is how long after the answer the streams may still be on their
	// way; they are longer only if the code took the descriptors away.
	streamWait = 500 * time.Millisecond
)

// interpreter is a driver process in its loop. Its methods are called by one
// goroutine at a time.
type interpreter struct {
	proc           sandbox.Process
	requests       *io.PipeWriter
	answers        *framed.Inbox
	stdout, stderr *marked
	done           chan struct{} // closed when the process is gone
	result         sandbox.Result
	err            error
}

func startInterpreter(ctx context.Context, runner func(context.Context) (sandbox.Runner, error)) (*interpreter, error) {
	r, err := runner(ctx)
	if err != nil {
		return nil, err
	}
	in, requests := io.Pipe()
	i := &interpreter{requests: requests, answers: framed.New(maxMessage), stdout: newMarked(), stderr: newMarked(), done: make(chan struct{})}
	i.proc, err = r.Start(ctx, sandbox.Cmd{
		Python: program(), Stdout: i.stdout, Stderr: i.stderr, Control: &sandbox.Control{In: in, Out: i.answers},
	})
	if err != nil {
		return nil, err
	}
	go i.wait(in)
	return i, nil
}

// wait ends with the process, which the keeper's Close ends at the latest.
func (i *interpreter) wait(in *io.PipeReader) {
	i.result, i.err = i.proc.Wait(context.Background())
	_ = in.CloseWithError(io.ErrClosedPipe)
	close(i.done)
}

func (i *interpreter) ended() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// kill ends the process and returns when it is gone.
func (i *interpreter) kill() {
	_ = i.proc.Kill()
	<-i.done
}

// evaluate is one evaluation; the bool tells whether the names are still there.
func (i *interpreter) evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, bool, error) {
	r := newRequest(req)
	message, err := r.encode(req.Reads)
	if err != nil {
		return evaltool.Response{}, true, err
	}
	i.answers.Take()
	i.stdout.begin(r.Mark)
	i.stderr.begin(r.Mark)
	go i.send(message)
	a, ending := i.await(ctx, r.ID, req.Timeout)
	resp, alive, err := i.respond(a, ending)
	if !alive && !i.ended() {
		i.kill()
	}
	return resp, alive, err
}

// send ends with the process: the reading end of the pipe is closed then.
func (i *interpreter) send(message io.Reader) { _, _ = io.Copy(i.requests, message) }

// ending is why an evaluation was stopped before its answer; "" is that it wasn't.
type ending string

// await waits for the answer. It is nil when the process is gone.
func (i *interpreter) await(ctx context.Context, id string, timeout time.Duration) (*answer, ending) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	a, why := i.awaitUntil(id, timer.C, ctx.Done())
	if why == "" {
		return a, ""
	}
	for range interrupts {
		_ = i.proc.Signal("INT")
		wait := time.NewTimer(interruptWait)
		a, again := i.awaitUntil(id, wait.C, nil)
		wait.Stop()
		if again == "" {
			return a, why
		}
	}
	i.kill()
	return nil, why
}

// awaitUntil gives the answer, or nil when the process is gone, or why neither
// came in time.
func (i *interpreter) awaitUntil(id string, late <-chan time.Time, stop <-chan struct{}) (*answer, ending) {
	for {
		select {
		case message := <-i.answers.Arrived():
			if message == nil { // more than an answer may have: it will make no sense of itself again
				i.kill()
				return nil, ""
			}
			if a, err := parseAnswer(message, id); err == nil {
				return &a, ""
			}
		case <-i.done:
			return i.lastWords(id), ""
		case <-late:
			return nil, evaltool.StatusTimedOut
		case <-stop:
			return nil, evaltool.StatusCancelled
		}
	}
}

// lastWords is the answer that came just before the end, if it is one: the
// library that the image lacks is said so.
func (i *interpreter) lastWords(id string) *answer {
	if a, err := parseAnswer(i.answers.Take(), id); err == nil && a.Unsupported != "" {
		return &a
	}
	return nil
}

// respond makes the Response of what came back.
func (i *interpreter) respond(a *answer, why ending) (evaltool.Response, bool, error) {
	if a != nil && a.Unsupported != "" {
		return evaltool.Response{}, false, unsupported(*a)
	}
	i.awaitStreams()
	resp := evaltool.Response{Status: string(why), Stdout: i.stdout.text().Text()}
	stderr := i.stderr.text()
	switch {
	case why == evaltool.StatusTimedOut:
		resp.Stderr = stderr.TextWith(evaltool.TimeoutText)
		resp.Notes = append(resp.Notes, fate(a))
	case why != "":
		resp.Stderr = stderr.Text()
		resp.Notes = append(resp.Notes, fate(a))
	case a == nil:
		return i.died(stderr), false, nil
	case a.Status == evaltool.StatusExited:
		resp.Stderr = stderr.Text()
		fill(&resp, *a)
	default:
		resp.Status, resp.Stderr = evaltool.StatusException, stderr.TextWith(a.Traceback)
	}
	return resp, a != nil, nil
}

func fate(a *answer) string {
	if a != nil {
		return "the names of the kept interpreter are still there"
	}
	return "the code could not be interrupted, so its interpreter was ended: its names are lost, the next call starts a new one"
}

// died describes an interpreter that went away without an answer.
func (i *interpreter) died(stderr *evaltool.Stream) evaltool.Response {
	status := string(i.result.Status)
	if i.err != nil || status == "" {
		status = string(sandbox.StatusSandboxLost)
	}
	notes := append([]string{howEnded(sandbox.Result{Status: sandbox.Status(status), ExitCode: i.result.ExitCode, Signal: i.result.Signal})}, i.result.Notices...)
	return evaltool.Response{
		Status: status, Ended: true, Stdout: i.stdout.text().Text(), Stderr: stderr.Text(),
		Notes: append(notes, "the names of the kept interpreter are lost, the next call starts a new one"),
	}
}

// awaitStreams waits until the driver's mark has come through both streams.
func (i *interpreter) awaitStreams() {
	late := time.NewTimer(streamWait)
	defer late.Stop()
	for _, s := range []*marked{i.stdout, i.stderr} {
		select {
		case <-s.reached():
		case <-i.done:
		case <-late.C:
			return
		}
	}
}
