package shelltool

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// runUntil runs a program that can become a process: its output goes to a process's log and to the
// call's own record. After the time it becomes a process, unless the maximum of processes runs: then
// the call keeps waiting.
func (s *Shell) runUntil(ctx context.Context, cmd sandbox.Cmd, shown []string, stdin string, after time.Duration) (sandbox.Result, *process, error) {
	p := newProcess(shown, cmd, stdin)
	_, _ = p.stdin.add("", true)
	out, errs := &loose{w: cmd.Stdout}, &loose{w: cmd.Stderr}
	captured := cmd.Stdout != nil
	if captured {
		cmd.Stdout, cmd.Stderr = out, errs
	}
	cmd.Capture = nil // a process keeps its newest output, which a cut at the source would delay
	if err := s.startIn(ctx, p, cmd, captured); err != nil {
		p.discard()
		return sandbox.Result{}, nil, err
	}
	short, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	if p.await(short) != nil && ctx.Err() == nil && s.reserve() == nil {
		out.drop()
		errs.drop()
		s.settle(p, true)
		return sandbox.Result{}, p, nil
	}
	defer p.discard()
	if p.await(ctx) == nil {
		return p.result, nil, nil
	}
	_ = p.proc.Kill()
	<-p.ended
	res := p.result
	if res.Status == sandbox.StatusSignaled { // by us
		res.Status = sandbox.StatusCancelled
	}
	return res, nil, nil
}

// handedOver returns the result of a call whose program goes on as a process.
func (p *process) handedOver(notices []string) *ExecuteResult {
	return &ExecuteResult{
		Command: p.command, Cwd: p.cwd, ExitCode: -1, Status: stateRunning, ProcessID: p.id,
		DurationMS: time.Since(p.started).Milliseconds(), Notices: notices,
	}
}

// loose is a writer whose destination can be removed while it is in use.
type loose struct {
	mu sync.Mutex
	w  io.Writer // nil discards
}

func (l *loose) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil {
		return len(b), nil
	}
	return l.w.Write(b)
}

func (l *loose) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w = nil
}
