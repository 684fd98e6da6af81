package lisp

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/evaltool/lisp/driver"
	"github.com/wisbox/wisbox/internal/framed"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// How an evaluation that must stop is stopped: it is interrupted a few times,
// because cleanup forms may go on for ever too, and then SBCL is killed.
const (
	interrupts    = 3
	interruptWait = 250 * time.Millisecond
	// streamWait is how long after the answer the streams may still be on their
	// way; they are longer only if the code took the descriptors away.
	streamWait = 500 * time.Millisecond
	// startWait bounds the start, which compiles the driver where the image has none.
	startWait = 30 * time.Second
	// stackSize of every thread, in MiB.
	stackSize = 8
)

// startScript loads the compiled driver $1 or, where it isn't, the source from
// stdin.
const startScript = `driver=$1; shift
command -v sbcl >/dev/null || exit 127
load="(load \"$driver\")"
[ -r "$driver" ] || load='(load sb-sys:*stdin*)'
exec sbcl "$@" --no-sysinit --no-userinit --eval "$load" --eval '(wisbox.driver:main)'`

func startCmd(compiled string, memory int64) sandbox.Cmd {
	return sandbox.Cmd{
		Argv: []string{
			"sh", "-c", startScript, "lisp", compiled, "--noinform", "--disable-ldb",
			"--dynamic-space-size", strconv.FormatInt(max(memory/2>>20, 64), 10) + "MB",
			"--control-stack-size", strconv.Itoa(stackSize) + "MB", "--end-runtime-options",
		},
		Stdin: strings.NewReader(driver.Source),
	}
}

// process is one SBCL with the driver in its loop. Its methods are called by one
// goroutine at a time.
type process struct {
	proc           sandbox.Process
	requests       *io.PipeWriter
	answers        *framed.Inbox
	stdout, stderr *marked
	sent           int           // interrupts, ever
	done           chan struct{} // closed when the process is gone
	result         sandbox.Result
	err            error
}

// start returns when SBCL is ready for requests.
func start(ctx context.Context, runner func(context.Context) (sandbox.Runner, error), compiled string, memory int64) (*process, error) {
	r, err := runner(ctx)
	if err != nil {
		return nil, err
	}
	in, requests := io.Pipe()
	p := &process{requests: requests, answers: framed.New(maxMessage), stdout: newMarked(), stderr: newMarked(), done: make(chan struct{})}
	cmd := startCmd(compiled, memory)
	cmd.Stdout, cmd.Stderr, cmd.Control = p.stdout, p.stderr, &sandbox.Control{In: in, Out: p.answers}
	if p.proc, err = r.Start(ctx, cmd); err != nil {
		return nil, err
	}
	go p.wait(in)
	return p, p.awaitReady(ctx)
}

// wait ends with the process, which Close ends at the latest.
func (p *process) wait(in *io.PipeReader) {
	p.result, p.err = p.proc.Wait(context.Background())
	_ = in.CloseWithError(io.ErrClosedPipe)
	close(p.done)
}

func (p *process) awaitReady(ctx context.Context) error {
	timer := time.NewTimer(startWait)
	defer timer.Stop()
	a, why := p.await(readyID, timer.C, ctx.Done())
	if a != nil {
		_, _ = p.stdout.text()
		_, _ = p.stderr.text()
		return nil
	}
	p.kill()
	switch {
	case why == StatusCancelled:
		return ctx.Err()
	case p.err == nil && p.result.ExitCode == sandbox.ExitNotFound:
		return tool.Errorf(tool.Unsupported, "this image has no SBCL: install the package sbcl in it")
	}
	return tool.Errorf(tool.Unavailable, "SBCL did not start: %s; give the session more memory or call again", how(p.result))
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process and returns when it is gone.
func (p *process) kill() {
	_ = p.proc.Kill()
	<-p.done
}

// ask is one request. The reply says how it ended; after StatusEnded the process
// is gone.
func (p *process) ask(ctx context.Context, r request) (*reply, error) {
	id, mark := secret(), secret()
	p.answers.Take()
	p.stdout.begin(mark, r.limit)
	p.stderr.begin(mark, r.limit)
	go p.write(r.encode(id, mark, p.sent))
	a, why := p.await(id, after(r.timeout), ctx.Done())
	if why != "" {
		a = p.interrupt(id)
	}
	p.awaitStreams()
	return p.reply(r, a, why)
}

// write ends with the process: the reading end of the pipe is closed then.
func (p *process) write(message []byte) { _, _ = p.requests.Write(message) }

// after is time.After where 0 is never.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// await gives the answer, or nil when the process is gone, or why neither came
// in time.
func (p *process) await(id string, late <-chan time.Time, stop <-chan struct{}) (*answer, Status) {
	for {
		select {
		case message := <-p.answers.Arrived():
			if message == nil { // more than an answer may have: it will make no sense of itself again
				p.kill()
				return nil, ""
			}
			if a, err := parseAnswer(message, id); err == nil {
				return a, ""
			}
		case <-p.done:
			return nil, ""
		case <-late:
			return nil, StatusTimedOut
		case <-stop:
			return nil, StatusCancelled
		}
	}
}

// interrupt stops what is going on and gives its answer, or nil when the process
// had to be killed.
func (p *process) interrupt(id string) *answer {
	for range interrupts {
		p.sent++
		_ = p.proc.Signal("INT")
		if a, why := p.await(id, time.After(interruptWait), nil); why == "" {
			return a
		}
	}
	p.kill()
	return nil
}

// awaitStreams waits until the driver's mark has come through both streams.
func (p *process) awaitStreams() {
	late := time.NewTimer(streamWait)
	defer late.Stop()
	for _, s := range []*marked{p.stdout, p.stderr} {
		select {
		case <-s.reached():
		case <-p.done:
		case <-late.C:
			return
		}
	}
}

// how says how the process ended.
func how(r sandbox.Result) string {
	switch r.Status {
	case sandbox.StatusExited:
		return fmt.Sprintf("it ended with exit code %d", r.ExitCode)
	case sandbox.StatusSignaled:
		return "it was ended by signal " + r.Signal
	case "":
		return "its sandbox was lost"
	}
	return "it was ended: " + string(r.Status)
}
