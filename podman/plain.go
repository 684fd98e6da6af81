package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// plainGaps is what an image without Python costs.
var plainGaps = []string{
	"the image has no python3 of version 3.9 or newer: programs run one at a time by plain exec, 200 ms slower each",
	"a timeout is kept by the host, not inside the sandbox",
	"verdicts on memory and processes, terminals, background processes and python evaluation are not available",
	"limits are not read back",
}

const cleanTimeout = 10 * time.Second

// plain runs programs by Podman's exec, one at a time, and then kills all that
// uid 1000 runs: the best that can be done without an agent.
type plain struct {
	s    *Sandbox
	turn chan struct{}
}

func (s *Sandbox) fallBack(cause error) *plain {
	s.b.log.Warn("sandbox without agent", "sandbox", s.spec.ID, "error", cause)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plain == nil {
		s.plain = &plain{s: s, turn: make(chan struct{}, 1)}
	}
	return s.plain
}

// plainly tells whether the image turned out to have no Python.
func (s *Sandbox) plainly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plain != nil
}

// Start is not possible: nothing in the sandbox would own the process.
func (p *plain) Start(context.Context, sandbox.Cmd) (sandbox.Process, error) {
	return nil, fail(sandbox.ErrUnsupported, nil, "background processes need an image with python3")
}

func (p *plain) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	if cmd.Python != nil || cmd.Control != nil || cmd.TTY != nil {
		return sandbox.Result{}, fail(sandbox.ErrUnsupported, nil, "this needs an image with python3")
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return sandbox.Result{}, fail(ctx.Err(), nil, "gave up waiting for the program before")
	}
	return p.run(ctx, cmd)
}

// run is one exec; whatever happens, nothing of uid 1000 lives when it returns.
func (p *plain) run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	start := time.Now()
	runCtx, cancel := withTimeout(ctx, cmd.Timeout)
	defer cancel()
	stream, err := p.s.b.exec(runCtx, p.s.name, execConfig{
		Cmd: cmd.Argv, User: "1000:1000", WorkingDir: sandbox.WorkspaceDir + "/" + cmd.Dir,
		Env: append([]string{"HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"}, cmd.Env...),
	})
	if isAnswer(err) {
		return sandbox.Result{Status: sandbox.StatusExited, ExitCode: execExitCode(err)}, nil
	}
	if err != nil {
		return sandbox.Result{}, p.s.diagnose(ctx, err)
	}
	stop := context.AfterFunc(runCtx, func() { stream.Close() })
	defer stop()
	out, errOut := newCut(cmd.Stdout, cmd.Capture), newCut(cmd.Stderr, cmd.Capture)
	p.pump(stream, cmd.Stdin, out, errOut)
	result := sandbox.Result{Stdout: out.stream(), Stderr: errOut.stream()}
	p.outcome(ctx, runCtx, stream, &result)
	p.clean(ctx)
	result.Duration = time.Since(start)
	return result, nil
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func execExitCode(err error) int {
	if says(err, "permission denied") {
		return sandbox.ExitNotExecutable
	}
	return sandbox.ExitNotFound
}

// pump moves the streams until the program has closed its own.
func (p *plain) pump(s *stream, stdin io.Reader, out, errOut io.Writer) {
	go func() {
		if stdin != nil {
			io.Copy(s, stdin)
		}
		if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	}()
	s.onStderr = errOut
	io.Copy(out, s)
}

// outcome fills in how the program ended.
func (p *plain) outcome(ctx, runCtx context.Context, s *stream, r *sandbox.Result) {
	r.Status, r.ExitCode = sandbox.StatusSandboxLost, -1
	switch {
	case ctx.Err() != nil:
		r.Status, r.ExitCode = sandbox.StatusCancelled, sandbox.ExitSignalBase+int(syscall.SIGKILL)
		return
	case errors.Is(runCtx.Err(), context.DeadlineExceeded):
		r.Status, r.ExitCode = sandbox.StatusTimedOut, sandbox.ExitTimeout
		return
	}
	var state struct {
		Running  bool
		ExitCode int
	}
	for try := 1; try <= maxTries; try++ {
		err := p.s.b.do(runCtx, request{method: http.MethodGet, path: "/exec/" + s.session + "/json", out: &state})
		if err == nil && !state.Running {
			r.Status, r.ExitCode = sandbox.StatusExited, state.ExitCode
			if n := state.ExitCode - sandbox.ExitSignalBase; n > 0 && n < 65 {
				r.Notices = append(r.Notices, fmt.Sprintf("exit code %d may mean signal %d", state.ExitCode, n))
			}
			return
		}
		pause(runCtx, try)
	}
}

// clean kills all that uid 1000 runs, the killer included.
func (p *plain) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	s, err := p.s.b.exec(ctx, p.s.name, execConfig{Cmd: []string{"sh", "-c", "kill -9 -1"}, User: "1000:1000", WorkingDir: "/"})
	if err != nil {
		p.s.b.log.Warn("processes may be left in the sandbox", "sandbox", p.s.spec.ID, "error", err)
		return
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	io.Copy(io.Discard, s)
}

// cut passes on a stream's head, keeps its tail and counts the rest.
type cut struct {
	mu      sync.Mutex
	w       io.Writer
	capture *sandbox.Capture
	total   int64
	tail    []byte
}

func newCut(w io.Writer, capture *sandbox.Capture) *cut {
	if w == nil {
		w = io.Discard
	}
	return &cut{w: w, capture: capture}
}

func (c *cut) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := p
	if c.capture != nil {
		head = p[:min(int64(len(p)), max(0, c.capture.Forward-c.total))]
		c.tail = append(c.tail, p[len(head):]...)
		c.tail = c.tail[max(0, len(c.tail)-c.capture.Tail):]
	}
	c.total += int64(len(p))
	if len(head) > 0 {
		c.w.Write(head) // a reader that is gone doesn't stop the program
	}
	return len(p), nil
}

func (c *cut) stream() sandbox.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sandbox.Stream{Bytes: c.total, Tail: []byte(strings.Clone(string(c.tail)))}
}
