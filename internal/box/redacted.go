package box

import (
	"context"
	"io"

	"github.com/wisbox/wisbox/internal/redact"
	"github.com/wisbox/wisbox/sandbox"
)

// redacted is a Runner that removes secrets from the streams of programs.
type redacted struct {
	sandbox.Runner
	r *redact.Redactor
}

// redactedStreams are the streams of one program.
type redactedStreams struct{ stdout, stderr *redact.Writer }

func (r redacted) wrap(cmd *sandbox.Cmd) redactedStreams {
	var s redactedStreams
	wrap := func(w io.Writer) (*redact.Writer, io.Writer) {
		if w == nil {
			return nil, nil
		}
		out := r.r.NewWriter(w)
		return out, out
	}
	s.stdout, cmd.Stdout = wrap(cmd.Stdout)
	s.stderr, cmd.Stderr = wrap(cmd.Stderr)
	return s
}

// finish passes on the remaining bytes. A reader that is gone is not an error of the program.
func (s redactedStreams) finish(r *redact.Redactor, res sandbox.Result) sandbox.Result {
	for _, c := range []struct {
		w    *redact.Writer
		kept *sandbox.Stream
	}{{s.stdout, &res.Stdout}, {s.stderr, &res.Stderr}} {
		if c.w != nil {
			_ = c.w.Close(c.kept.Bytes)
		}
		c.kept.Tail = r.Tail(c.kept.Tail)
	}
	return res
}

// Redacted returns a Runner that removes the secrets of r from the streams of programs. If r is nil, it
// returns the runner unchanged.
func Redacted(to sandbox.Runner, r *redact.Redactor) sandbox.Runner {
	if r == nil {
		return to
	}
	return redacted{to, r}
}

// Unwrap is for [sandbox.As].
func (r redacted) Unwrap() sandbox.Runner { return r.Runner }

// Run implements sandbox.Runner.
func (r redacted) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	streams := r.wrap(&cmd)
	res, err := r.Runner.Run(ctx, cmd)
	return streams.finish(r.r, res), err
}

// Start implements sandbox.Runner.
func (r redacted) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	streams := r.wrap(&cmd)
	p, err := r.Runner.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return r.finishing(p, streams), nil
}

// finishing returns a program that ends when its streams have been passed on.
func (r redacted) finishing(p sandbox.Process, streams redactedStreams) sandbox.Process {
	return sandbox.Follow(context.Background(), p, func(wait func()) { go wait() }, func(res sandbox.Result, err error) (sandbox.Result, error) {
		return streams.finish(r.r, res), err
	})
}
