package box

import (
	"context"
	"errors"
	"fmt"

	"github.com/wisbox/wisbox/internal/redact"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
)

// Adopt takes over the sandbox that find returns, unless the Box already has one, and reports
// whether it has one now. It has none if the error of find wraps [sandbox.ErrNotFound].
func (b *Box) Adopt(ctx context.Context, find func(context.Context) (sandbox.Sandbox, error)) (bool, error) {
	if err := b.mu.Lock(ctx); err != nil {
		return false, err
	}
	defer b.mu.Unlock()
	return b.adopt(ctx, find)
}

// adopt is like Adopt with mu held.
func (b *Box) adopt(ctx context.Context, find func(context.Context) (sandbox.Sandbox, error)) (bool, error) {
	if b.cur != nil {
		return true, nil
	}
	sb, err := find(ctx)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return false, nil
	case err != nil:
		return false, toolerr.Of(err)
	}
	b.cur, b.prepared = sb, false
	return true, nil
}

// detacher returns the existing sandbox if its programs can outlive their handle.
func (b *Box) detacher(ctx context.Context) (sandbox.Sandbox, sandbox.Detacher, error) {
	if err := b.opts.Awake(); err != nil {
		return nil, nil, err
	}
	sb, err := b.Peek(ctx)
	if err != nil {
		return nil, nil, err
	}
	d, ok := sandbox.As[sandbox.Detacher](sb)
	if sb == nil || !ok {
		return nil, nil, fmt.Errorf("%w: no sandbox with programs that outlive their handle", sandbox.ErrNotFound)
	}
	return sb, d, nil
}

// Detached implements [sandbox.Detacher]. It creates no sandbox.
func (b *Box) Detached(ctx context.Context) ([]sandbox.DetachedProcess, error) {
	_, d, err := b.detacher(ctx)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	found, err := d.Detached(ctx)
	return found, toolerr.Of(err)
}

// EndOthers implements [sandbox.SoleOwner]. It creates no sandbox.
func (b *Box) EndOthers(ctx context.Context) error {
	sb, _, err := b.detacher(ctx)
	if err != nil {
		return toolerr.Of(err)
	}
	if o, ok := sandbox.As[sandbox.SoleOwner](sb); ok {
		err = o.EndOthers(ctx)
	}
	return toolerr.Of(err)
}

// Attach implements [sandbox.Detacher]. It also uses the Timeout of cmd, as the remaining time.
func (b *Box) Attach(ctx context.Context, id uint64, cmd sandbox.Cmd) (sandbox.Process, error) {
	sb, d, err := b.detacher(ctx)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	p, err := d.Attach(ctx, id, cmd)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	if cmd.Timeout > 0 {
		cmd.Timeout += b.stood() // at most: it isn't known how much of that time was the program's
	}
	return b.guarded(sb, p, cmd, b.outliving(ctx, cmd)), nil
}

// guarded returns a running program with its guard.
func (b *Box) guarded(sb sandbox.Sandbox, p sandbox.Process, cmd sandbox.Cmd, ended func(sandbox.Result)) *watched {
	w := &watched{Process: p, guard: b.watch(context.Background(), sb, cmd.Timeout)}
	go func() { ended(w.guard.follow(p)) }()
	return w
}

// startable returns a Cmd that the sandbox can start: if its programs can't outlive their handle, a
// detached one ends with it.
func startable(sb sandbox.Sandbox, cmd sandbox.Cmd) sandbox.Cmd {
	if _, ok := sandbox.As[sandbox.Detacher](sb); !ok && cmd.Lifetime.Detaches() {
		cmd.Label = ""
		if cmd.Lifetime == sandbox.LifetimeLeft {
			cmd.Lifetime = sandbox.LifetimeSelf
		} else {
			cmd.Lifetime = sandbox.LifetimeCall
		}
	}
	return cmd
}

// Detached implements [sandbox.Detacher], as the runner does.
func (r redacted) Detached(ctx context.Context) ([]sandbox.DetachedProcess, error) {
	d, err := r.detacher()
	if err != nil {
		return nil, err
	}
	return d.Detached(ctx)
}

// Attach implements [sandbox.Detacher]. The streams may begin within a secret, so the end of a value
// at their beginning is covered as well.
func (r redacted) Attach(ctx context.Context, id uint64, cmd sandbox.Cmd) (sandbox.Process, error) {
	d, err := r.detacher()
	if err != nil {
		return nil, err
	}
	streams := r.wrap(&cmd)
	for _, w := range []*redact.Writer{streams.stdout, streams.stderr} {
		if w != nil {
			w.Continues()
		}
	}
	p, err := d.Attach(ctx, id, cmd)
	if err != nil {
		return nil, err
	}
	return r.finishing(p, streams), nil
}

func (r redacted) detacher() (sandbox.Detacher, error) {
	d, ok := sandbox.As[sandbox.Detacher](r.Runner)
	if !ok {
		return nil, fmt.Errorf("%w: programs end with their handle", sandbox.ErrUnsupported)
	}
	return d, nil
}
