package sandbox

import "context"

// OnEnd returns p with end called for each answer of its Wait, which end may change.
func OnEnd(p Process, end func(context.Context, Result, error) (Result, error)) Process {
	return &ending{p, end}
}

type ending struct {
	Process
	end func(context.Context, Result, error) (Result, error)
}

// Unwrap is for [As].
func (p *ending) Unwrap() Process { return p.Process }

// Wait implements Process.
func (p *ending) Wait(ctx context.Context) (Result, error) {
	res, err := p.Process.Wait(ctx)
	return p.end(ctx, res, err)
}

// Follow waits for p with ctx in a goroutine that begin starts, and calls end once with the answer, even if nobody waits
// for the process that it returns. That process has ended after that, with the result of end.
func Follow(ctx context.Context, p Process, begin func(func()), end func(Result, error) (Result, error)) Process {
	out := &followed{Process: p, done: make(chan struct{})}
	begin(func() {
		defer close(out.done)
		out.res, out.err = end(p.Wait(ctx))
	})
	return out
}

type followed struct {
	Process
	done chan struct{} // closed when res and err are set
	res  Result
	err  error
}

// Unwrap is for [As].
func (p *followed) Unwrap() Process { return p.Process }

// Wait implements Process.
func (p *followed) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
		return p.res, p.err
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}
