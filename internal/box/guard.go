package box

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// overdue is how long a program may still exist after its time limit, its caller's end or its kill.
// The sandbox enforces the limit. If a hostile program prevents that, the guard removes the sandbox.
var overdue = patience.For(5 * time.Second)

// guard is this backstop for one program.
type guard struct {
	b  *Box
	sb sandbox.Sandbox

	fired atomic.Bool

	mu    sync.Mutex
	timer *time.Timer   // nil while the program may continue
	stood time.Duration // the total frozen time when the timer was set
	stop  func() bool   // of the watch on the caller's context
	ended bool
}

func (b *Box) watch(ctx context.Context, sb sandbox.Sandbox, timeout time.Duration) *guard {
	g := &guard{b: b, sb: sb}
	b.programs.Add(1)
	if timeout > 0 {
		g.arm(timeout + overdue)
	}
	g.stop = context.AfterFunc(ctx, func() { g.arm(overdue) })
	return g
}

// arm sets the program's remaining time, unless it already has less.
func (g *guard) arm(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.stood = g.b.stood()
	g.timer = time.AfterFunc(d, g.fire)
}

// since returns how long programs were frozen since the guard was armed.
func (g *guard) since() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.stood() - g.stood
}

func (g *guard) fire() {
	if d := g.since(); d > 0 {
		g.arm(max(d, stillLook))
		return
	}
	g.fired.Store(true) // must come first: the program's result depends on it
	g.b.opts.Log.Warn("a program outlived its end: the sandbox is removed")
	if !g.b.drop(context.Background(), g.sb) { // it has just been paused
		g.fired.Store(false)
		g.arm(stillLook)
	}
}

// end removes the guard, and corrects the result if the guard had to act.
func (g *guard) end(ctx context.Context, res sandbox.Result) sandbox.Result {
	g.release()
	if !g.fired.Load() {
		return g.b.sayLost(res)
	}
	res.Status, res.ExitCode, res.Signal = sandbox.StatusTimedOut, sandbox.ExitTimeout, ""
	if ctx.Err() != nil {
		res.Status, res.ExitCode = sandbox.StatusCancelled, sandbox.ExitSignalBase+9
	}
	res.Notices = append(res.Notices, "the program could not be ended and its sandbox was removed; the next call has another one, over the same files")
	return res
}

// lostNotice reports the effects of a lost sandbox, and a frequent cause: /tmp is part of its memory.
const lostNotice = "the sandbox ended under the program, perhaps because it ran out of memory, which files in /tmp and in the home directory count to; " +
	"the next call has another one, over the same workspace, without other processes and what was in /tmp and in the home directory"

func (b *Box) sayLost(res sandbox.Result) sandbox.Result {
	switch {
	case res.Status != sandbox.StatusSandboxLost:
	case b.letGo.Load():
		res.Status, res.ExitCode, res.Signal = sandbox.StatusCancelled, sandbox.ExitSignalBase+9, "KILL"
	default:
		res.Notices = append(res.Notices, lostNotice)
	}
	return res
}

// follow removes the guard when the program ends, even if nobody waits for it, and returns its
// result.
func (g *guard) follow(p sandbox.Process) sandbox.Result {
	res, _ := p.Wait(context.Background()) // with an error, the status is empty
	g.release()
	if g.fired.Load() {
		res.Status = sandbox.StatusTimedOut
	}
	return res
}

func (g *guard) release() {
	g.stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.b.programs.Add(-1)
	}
	g.ended = true
	if g.timer != nil {
		g.timer.Stop()
	}
}

// watched is a started program with its guard.
type watched struct {
	sandbox.Process
	guard *guard
}

// Unwrap is for [sandbox.As].
func (w *watched) Unwrap() sandbox.Process { return w.Process }

// Stood implements [interp.Stander].
func (w *watched) Stood() time.Duration { return w.guard.b.stood() }

// Kill implements sandbox.Process.
func (w *watched) Kill() error {
	w.guard.arm(overdue)
	return w.Process.Kill()
}

// Wait implements sandbox.Process.
func (w *watched) Wait(ctx context.Context) (sandbox.Result, error) {
	res, err := w.Process.Wait(ctx)
	if err != nil {
		return res, err
	}
	return w.guard.end(context.Background(), res), nil
}
