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
	"crypto/rand"
	"encoding/hex"
	"io"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// An evaluation that must stop is interrupted, and has these times to stop: more
// than one, because code may catch the first interrupt, and cleanup may never end.
// After them, two seconds in all, its process is killed.
var interruptWaits = []time.Duration{200 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond}

// Process is one interpreter with its driver. Output is kept in values of type
// S, one for each stream and call. Its methods are called by one goroutine at a
// time.
type Process[S io.Writer] struct {
	proc           sandbox.Process
	requests       *io.PipeWriter
	answers        *Inbox
	stdout, stderr *output[S]
	interrupts     int
	release        func()        // of the request that is on, or the last one
	done           chan struct{} // closed when the process is gone
	result         sandbox.Result
	err            error
}

// SecretSize is the length of a [Secret].
const SecretSize = 32

// Secret is a word that code can't have known before its evaluation, for an answer's ID.
func Secret() string {
	var word [SecretSize / 2]byte
	_, _ = rand.Read(word[:]) // never fails: crypto/rand
	return hex.EncodeToString(word[:])
}

// Stander is a [sandbox.Process] that may be made to stand still.
type Stander interface {
	// Stood is how long in all, of whatever length before the process began.
	Stood() time.Duration
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

// Ended reports whether the process is gone.
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
	if p.release != nil {
		p.release()
	}
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

// Streams gives what keeps the output of the call that comes next, or is on.
func (p *Process[S]) Streams(see func(stdout, stderr S)) {
	p.stdout.mu.Lock()
	defer p.stdout.mu.Unlock()
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	see(p.stdout.now, p.stderr.now)
}

// Output is what the process has written since the last call of Output.
func (p *Process[S]) Output() (stdout, stderr S) { return p.stdout.take(), p.stderr.take() }

// Await waits for a message that accept takes and that the process sends unasked.
// The rest is as with [Process.Ask].
func (p *Process[S]) Await(ctx context.Context, timeout time.Duration, accept func([]byte) bool) (answered bool, late sandbox.Status) {
	return p.await(accept, timeout, ctx.Done())
}

// Request is one request to the driver.
type Request struct {
	Message io.Reader
	// Timeout after which the evaluation is stopped; 0 is none.
	Timeout time.Duration
	// Accept reports whether a message is the answer; others are ignored.
	Accept func(message []byte) bool
	// Divert sees each message before Accept: one that it takes is no answer, and is
	// replied to, at any time before the process ends. It may block, and bounds how many
	// replies there are. nil is none.
	Divert func(message []byte) (reply []byte, taken bool)
	// Release is called before the evaluation is stopped or its process killed: what
	// takes its output must not wait for a reader any more. nil is none.
	Release func()
	// Interrupt is sent to the driver with each interrupt, for one that a signal does not
	// stop. nil is none.
	Interrupt []byte
	// Waits are how long an evaluation that is stopped has after each interrupt, before its
	// process is killed. Default: two seconds in all.
	Waits []time.Duration
}

// Ask does one request. It was answered, or the process is gone; late says why it
// was stopped, timed out or cancelled, or is empty. The call's output is there
// when it returns: an answer comes after what was written before it.
func (p *Process[S]) Ask(ctx context.Context, r Request) (answered bool, late sandbox.Status) {
	p.answers.Take() // nobody asked for it
	p.release = r.Release
	if r.Divert != nil {
		p.answers.Divert(p.replying(r.Divert))
		defer p.answers.Divert(nil)
	}
	go p.send(r.Message)
	answered, late = p.Await(ctx, r.Timeout, r.Accept)
	if late != "" {
		if r.Release != nil {
			r.Release()
		}
		answered = p.interrupt(r)
	}
	return answered, late
}

func (p *Process[S]) replying(divert func([]byte) ([]byte, bool)) func([]byte) bool {
	return func(message []byte) bool {
		reply, taken := divert(message)
		if len(reply) > 0 {
			Reply(p.requests, reply)
		}
		return taken
	}
}

// Reply writes to a process that may read nothing, which must not block its own messages:
// it doesn't wait. The write ends with the pipe.
func Reply(to *io.PipeWriter, reply []byte) {
	go func() { _, _ = to.Write(reply) }()
}

// send ends with the process: the reading end of the pipe is closed then.
func (p *Process[S]) send(message io.Reader) { _, _ = io.Copy(p.requests, message) }

// limit is a time limit that doesn't run while the process stands still.
type limit struct {
	*time.Timer
	proc  sandbox.Process
	stood time.Duration // when it was set
}

// after is a limit that is never over where d is 0.
func (p *Process[S]) after(d time.Duration) *limit {
	l := &limit{Timer: time.NewTimer(d), proc: p.proc}
	l.stood = l.still()
	if d == 0 {
		l.Stop()
	}
	return l
}

func (l *limit) still() time.Duration {
	if s, ok := sandbox.As[Stander](l.proc); ok {
		return s.Stood()
	}
	return 0
}

// stillLook is how often a limit that is over looks whether the process goes on.
const stillLook = 100 * time.Millisecond

// over reports, when the timer has fired, whether the time was; if not, it is set again.
func (l *limit) over() bool {
	now := l.still()
	more := now - l.stood
	if more <= 0 {
		return true
	}
	l.stood = now
	l.Reset(max(more, stillLook))
	return false
}

func (p *Process[S]) await(accept func([]byte) bool, timeout time.Duration, stop <-chan struct{}) (bool, sandbox.Status) {
	late := p.after(timeout)
	defer late.Stop()
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
		case <-late.C:
			if late.over() {
				return false, sandbox.StatusTimedOut
			}
		case <-stop:
			return false, sandbox.StatusCancelled
		}
	}
}

// interrupt stops what is going on and reports whether it then answered; if not,
// the process had to be killed.
func (p *Process[S]) interrupt(r Request) bool {
	waits := r.Waits
	if waits == nil {
		waits = interruptWaits
	}
	for _, wait := range waits {
		p.interrupts++
		_ = p.proc.Signal("INT")
		if len(r.Interrupt) > 0 {
			Reply(p.requests, r.Interrupt)
		}
		answered, late := p.await(r.Accept, wait, nil)
		if late == "" {
			return answered
		}
	}
	p.Kill()
	return false
}
