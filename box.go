package wisbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
)

// box is a session's sandbox: made when the first program needs it, made again
// when it was lost. It is a sandbox.Runner whose methods may be called from many
// goroutines at once; only one of them makes the sandbox, the others wait.
type box struct {
	make func(context.Context) (sandbox.Sandbox, error)
	log  *slog.Logger

	turn chan struct{} // holds one token; who has it may read and change the rest
	cur  sandbox.Sandbox
	// ready is called with a sandbox before its first program; nil does nothing.
	ready   func(context.Context, sandbox.Sandbox) error
	isReady bool // ready was called for cur
}

func newBox(make func(context.Context) (sandbox.Sandbox, error), log *slog.Logger) *box {
	b := &box{make: make, log: log, turn: newTurn()}
	return b
}

// newTurn is a mutex that can be waited for with a context.
func newTurn() chan struct{} {
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	return turn
}

func (b *box) lock(ctx context.Context) error {
	select {
	case <-b.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *box) unlock() { b.turn <- struct{}{} }

// get gives the sandbox, making it where there is none.
func (b *box) get(ctx context.Context) (sandbox.Sandbox, error) {
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	if b.cur == nil {
		making, span := startSpan(ctx, "container")
		sb, err := b.make(making)
		span.End()
		if err != nil {
			return nil, err
		}
		b.cur, b.isReady = sb, false
	}
	if b.ready != nil && !b.isReady {
		if err := b.ready(ctx, b.cur); err != nil {
			return b.cur, err
		}
		b.isReady = true
	}
	return b.cur, nil
}

// readyBy makes ready be called before the next program.
func (b *box) readyBy(ctx context.Context, ready func(context.Context, sandbox.Sandbox) error) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	b.ready, b.isReady = ready, false
	return nil
}

// peek gives the sandbox if there is one.
func (b *box) peek(ctx context.Context) (sandbox.Sandbox, error) {
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	return b.cur, nil
}

// dropGrace bounds the removal of a lost sandbox, whose caller may be gone.
const dropGrace = 30 * time.Second

// drop gives up a lost sandbox, unless another call did so already.
func (b *box) drop(ctx context.Context, lost sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropGrace)
	defer cancel()
	if b.lock(ctx) != nil {
		return
	}
	defer b.unlock()
	if b.cur != lost {
		return
	}
	b.cur = nil
	if err := lost.Close(ctx); err != nil {
		b.log.Warn("remove a lost sandbox", "error", err)
	}
}

// Run implements sandbox.Runner. A sandbox that was lost before the program
// began is made again, once.
func (b *box) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (sandbox.Result, bool, error) {
		guard := b.watch(ctx, sb, cmd.Timeout)
		ctx, end := programSpan(ctx)
		res, err := sb.Run(ctx, cmd)
		end(res)
		lost := res.Status == sandbox.StatusSandboxLost
		return guard.end(ctx, res), lost, err
	})
}

// Start implements sandbox.Runner, as Run does.
func (b *box) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	return attempt(ctx, b, func(sb sandbox.Sandbox) (sandbox.Process, bool, error) {
		ended := outliving(ctx)
		p, err := sb.Start(ctx, cmd)
		if err != nil {
			ended(sandbox.Result{})
			return nil, false, err
		}
		w := &watched{Process: p, guard: b.watch(context.Background(), sb, cmd.Timeout)}
		go func() { ended(w.guard.follow(p)) }()
		return w, false, nil
	})
}

func attempt[T any](ctx context.Context, b *box, do func(sandbox.Sandbox) (T, bool, error)) (T, error) {
	var none T
	for again := true; ; again = false {
		var out T
		var lost bool
		sb, err := b.get(ctx)
		if err == nil {
			out, lost, err = do(sb)
		}
		if sb == nil {
			return none, toolerr.Of(err)
		}
		if lost || errors.Is(err, sandbox.ErrLost) {
			b.drop(ctx, sb)
		}
		if errors.Is(err, sandbox.ErrLost) && again {
			b.log.Info("sandbox lost, making it again", "error", err)
			continue
		}
		return out, toolerr.Of(err)
	}
}

// close removes the sandbox; detach leaves it for another process to open.
func (b *box) close(ctx context.Context) error {
	return b.end(ctx, func(sb sandbox.Sandbox) error { return sb.Close(ctx) })
}

func (b *box) detach(ctx context.Context) error {
	return b.end(ctx, func(sb sandbox.Sandbox) error { return sb.Detach() })
}

func (b *box) end(ctx context.Context, how func(sandbox.Sandbox) error) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.cur == nil {
		return nil
	}
	sb := b.cur
	b.cur = nil
	return toolerr.Of(how(sb))
}
