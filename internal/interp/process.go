// Package interp keeps an interpreter alive in a sandbox and asks it one request
// after the other. The interpreter is a program with a driver of wisbox's own,
// which shares its process with the code that it evaluates: what comes back is
// hostile input, bounded here and checked by the caller.
//
// The package knows no language and no message: it cuts the streams into calls,
// takes the newest answer, and stops what takes too long.
package interp

import (
	"context"
	"io"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// How an evaluation that must stop is stopped: it is interrupted a few times,
// because code may catch the first, and cleanup may go on for ever; then its
// process is killed. All together it takes less than a second.
const (
	interrupts    = 3
	interruptWait = 200 * time.Millisecond
)

// Process is one interpreter with its driver. Output is kept in values of type
// S, one for each stream and call. Its methods are called by one goroutine at a
// time.
type Process[S io.Writer] struct {
	proc           sandbox.Process
	requests       *io.PipeWriter
	answers        *Inbox
	stdout, stderr *output[S]
	interrupts     int
	done           chan struct{} // closed when the process is gone
	result         sandbox.Result
	err            error
}

// Start begins cmd, whose streams and control channel it sets. An answer longer
// than maxAnswer bytes ends the process; fresh makes what keeps a call's output.
// ctx bounds only the start.
func Start[S io.Writer](ctx context.Context, r sandbox.Runner, cmd sandbox.Cmd, maxAnswer uint32, fresh func() S) (*Process[S], error) {
	in, requests := io.Pipe()
	p := &Process[S]{
		requests: requests, answers: NewInbox(maxAnswer), done: make(chan struct{}),
		stdout: newOutput(fresh), stderr: newOutput(fresh),
	}
	cmd.Stdout, cmd.Stderr, cmd.Control = p.stdout, p.stderr, &sandbox.Control{In: in, Out: p.answers}
	var err error
	if p.proc, err = r.Start(ctx, cmd); err != nil {
		return nil, err
	}
	go p.wait(in)
	return p, nil
}

// wait ends with the process.
func (p *Process[S]) wait(in *io.PipeReader) {
	p.result, p.err = p.proc.Wait(context.Background())
	_ = in.CloseWithError(io.ErrClosedPipe)
	close(p.done)
}

// Ended tells whether the process is gone.
func (p *Process[S]) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends the process and returns when it is gone.
func (p *Process[S]) Kill() {
	_ = p.proc.Kill()
	<-p.done
}

// Result is how the process ended, once it has. A lost sandbox is
// [sandbox.StatusSandboxLost].
func (p *Process[S]) Result() sandbox.Result {
	<-p.done
	if p.err != nil || p.result.Status == "" {
		return sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}
	}
	return p.result
}

// Interrupts is how many were ever sent.
func (p *Process[S]) Interrupts() int { return p.interrupts }

// Output is what the process has written since the last call of Output.
func (p *Process[S]) Output() (stdout, stderr S) { return p.stdout.take(), p.stderr.take() }

// Await waits for a message that accept takes and that the process sends unasked.
// The rest is as with [Process.Ask].
func (p *Process[S]) Await(ctx context.Context, timeout time.Duration, accept func([]byte) bool) (answered bool, late sandbox.Status) {
	timer := after(timeout)
	defer timer.Stop()
	return p.await(accept, timer.C, ctx.Done())
}

// Request is one request to the driver.
type Request struct {
	Message io.Reader
	// Timeout after which the evaluation is stopped; 0 is none.
	Timeout time.Duration
	// Accept tells whether a message is the answer; others are ignored.
	Accept func(message []byte) bool
}

// Ask does one request. It was answered, or the process is gone; late says why it
// was stopped, timed out or cancelled, or is empty. The call's output is there
// when it returns: an answer comes after what was written before it.
func (p *Process[S]) Ask(ctx context.Context, r Request) (answered bool, late sandbox.Status) {
	p.answers.Take() // nobody asked for it
	go p.send(r.Message)
	answered, late = p.Await(ctx, r.Timeout, r.Accept)
	if late != "" {
		answered = p.interrupt(r.Accept)
	}
	return answered, late
}

// send ends with the process: the reading end of the pipe is closed then.
func (p *Process[S]) send(message io.Reader) { _, _ = io.Copy(p.requests, message) }

// after is a timer that never fires where d is 0.
func after(d time.Duration) *time.Timer {
	timer := time.NewTimer(d)
	if d == 0 {
		timer.Stop()
	}
	return timer
}

func (p *Process[S]) await(accept func([]byte) bool, late <-chan time.Time, stop <-chan struct{}) (bool, sandbox.Status) {
	for {
		select {
		case message := <-p.answers.Arrived():
			if message == nil { // more than an answer may have: it will make no sense of itself again
				p.Kill()
				return false, ""
			}
			if accept(message) {
				return true, ""
			}
		case <-p.done: // with or without last words
			last := p.answers.Take()
			return last != nil && accept(last), ""
		case <-late:
			return false, sandbox.StatusTimedOut
		case <-stop:
			return false, sandbox.StatusCancelled
		}
	}
}

// interrupt stops what is going on and tells whether it then answered; if not,
// the process had to be killed.
func (p *Process[S]) interrupt(accept func([]byte) bool) bool {
	for range interrupts {
		p.interrupts++
		_ = p.proc.Signal("INT")
		timer := after(interruptWait)
		answered, late := p.await(accept, timer.C, nil)
		timer.Stop()
		if late == "" {
			return answered
		}
	}
	p.Kill()
	return false
}
