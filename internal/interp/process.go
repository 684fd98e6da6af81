// Package interp keeps an interpreter alive in a sandbox and sends it one request after the other.
// The interpreter runs a driver of wisbox in the same process as the code that it evaluates. So its
// answers are hostile input, which this package bounds and the caller checks.
//
// The package knows no language and no messages: it divides the streams among the calls, returns the
// newest answer, and stops evaluations that take too long.
package interp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// An evaluation that must stop is interrupted several times, with these waits: code may catch the
// first interrupt, and cleanup may never end. After them, two seconds in all, its process is
// killed.
var interruptWaits = []time.Duration{200 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond}

// Process is one interpreter with its driver. Values of type S keep the output, one for each stream
// and call. Its methods are for one goroutine at a time.
type Process[S io.Writer] struct {
	proc           sandbox.Process
	requests       *io.PipeWriter
	answers        *Inbox
	stdout, stderr *output[S]
	interrupts     int
	release        func()        // of the current or the last request
	done           chan struct{} // closed when the process has ended
	result         sandbox.Result
	err            error
}

// SecretSize is the length of a [Secret].
const SecretSize = 32

// Secret returns a random word for an answer's ID, which code can't know before its evaluation.
func Secret() string {
	var word [SecretSize / 2]byte
	_, _ = rand.Read(word[:]) // crypto/rand never fails
	return hex.EncodeToString(word[:])
}

// Stander is a [sandbox.Process] that can be frozen.
type Stander interface {
	// Stood returns the total frozen time; it may start at any value.
	Stood() time.Duration
}

// Start starts cmd with its own streams and control channel. An answer longer than maxAnswer bytes
// ends the process; fresh returns a value that keeps one call's output. ctx bounds only the start.
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

// wait waits for the process to end.
func (p *Process[S]) wait(in *io.PipeReader) {
	p.result, p.err = p.proc.Wait(context.Background())
	_ = in.CloseWithError(io.ErrClosedPipe)
	close(p.done)
}

// Ended reports whether the process has ended.
func (p *Process[S]) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill kills the process and returns when it has ended.
func (p *Process[S]) Kill() {
	if p.release != nil {
		p.release()
	}
	_ = p.proc.Kill()
	<-p.done
}

// Result returns the result of the ended process. For a lost sandbox, its status is
// [sandbox.StatusSandboxLost].
func (p *Process[S]) Result() sandbox.Result {
	<-p.done
	if p.err != nil || p.result.Status == "" {
		return sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}
	}
	return p.result
}

// Interrupts returns the number of interrupts sent so far.
func (p *Process[S]) Interrupts() int { return p.interrupts }

// Streams calls see with the values that keep the output of the current or the next call.
func (p *Process[S]) Streams(see func(stdout, stderr S)) {
	p.stdout.mu.Lock()
	defer p.stdout.mu.Unlock()
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	see(p.stdout.now, p.stderr.now)
}

// Output returns the output since the last call of Output.
func (p *Process[S]) Output() (stdout, stderr S) { return p.stdout.take(), p.stderr.take() }

// Await waits for an unrequested message that accept accepts. Otherwise it is like [Process.Ask].
func (p *Process[S]) Await(ctx context.Context, timeout time.Duration, accept func([]byte) bool) (answered bool, late sandbox.Status) {
	return p.await(accept, timeout, ctx.Done())
}

// Request is one request to the driver.
type Request struct {
	Message io.Reader
	// Timeout after which the evaluation is stopped; 0 means no limit.
	Timeout time.Duration
	// Accept reports whether a message is the answer; others are ignored.
	Accept func(message []byte) bool
	// Divert sees each message before Accept. If taken is true, the message isn't an answer, and
	// gets the reply at any time before the process ends. Divert may block, and must bound the
	// number of replies. nil does nothing.
	Divert func(message []byte) (reply []byte, taken bool)
	// Release is called before the evaluation is stopped or its process killed: from then on the
	// consumer of its output must not wait for a reader. nil does nothing.
	Release func()
	// Interrupt is sent to the driver with each interrupt, for evaluations that a signal doesn't
	// stop. nil sends nothing.
	Interrupt []byte
	// Waits are the times that an evaluation has after each interrupt before its process is killed.
	// Default: two seconds in all.
	Waits []time.Duration
}

// Ask performs one request. It returns when the request is answered or the process has ended; late
// is the reason if it was stopped, timed out or cancelled, and otherwise empty. The call's output
// is complete on return, because an answer follows the output written before it.
func (p *Process[S]) Ask(ctx context.Context, r Request) (answered bool, late sandbox.Status) {
	p.answers.Take() // nobody asked for it
	p.release = r.Release
	if r.Divert != nil {
		p.answers.Divert(p.replying(r.Divert))
		defer p.answers.Divert(nil)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		p.send(r.Message)
	}()
	answered, late = p.Await(ctx, r.Timeout, r.Accept)
	if answered && !within(sent, readTime) { // else each request would stay in memory as long as the process
		p.Kill()
	}
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

// Reply writes without waiting: the process may not read at all, and that must not block its own
// messages. The write ends with the pipe.
func Reply(to *io.PipeWriter, reply []byte) {
	go func() { _, _ = to.Write(reply) }()
}

// send writes a message; it ends with the process, which closes the reading end of the pipe.
func (p *Process[S]) send(message io.Reader) { _, _ = io.Copy(p.requests, message) }

// readTime is the time in which a process that has answered must have read its request.
var readTime = patience.For(5 * time.Second)

func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// limit is a time limit that doesn't run while the process is frozen.
type limit struct {
	*time.Timer
	proc  sandbox.Process
	stood time.Duration // when the limit was set
}

// after returns a limit; it never ends if d is 0.
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

// stillLook is the interval at which an exceeded limit checks whether the process is still frozen.
const stillLook = 100 * time.Millisecond

// over reports whether the time is really over when the timer has fired; if not, it sets the timer
// again.
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
			if message == nil { // longer than an answer may be; the channel can't recover
				p.Kill()
				return false, ""
			}
			if accept(message) {
				return true, ""
			}
		case <-p.done: // with or without a last message
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

// interrupt stops the evaluation and reports whether it answered; if not, the process had to be
// killed.
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
