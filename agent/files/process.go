package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/wisbox/wisbox/agent/filewire"
	"github.com/wisbox/wisbox/sandbox"
)

// process is a process in the sandbox. Only one goroutine may read, and one may write.
type process struct {
	*filewire.Stream
	program sandbox.Process
	in      *io.PipeWriter
	out     *io.PipeReader
	since   time.Time // when it was idle last

	gone   chan struct{} // closed when it has ended; the fields below are set then
	result sandbox.Result
	err    error
}

func start(ctx context.Context, agent Starter) (*process, error) {
	theirIn, in := io.Pipe()
	out, theirOut := io.Pipe()
	program, err := agent.StartAgent(ctx, sandbox.Cmd{Argv: []string{"wisbox-agent", "files"}, Stdin: theirIn, Stdout: theirOut})
	if err != nil {
		theirIn.Close()
		return nil, err
	}
	p := &process{Stream: filewire.NewStream(out, in), program: program, in: in, out: out, gone: make(chan struct{})}
	go func() {
		p.result, p.err = program.Wait(context.Background())
		close(p.gone)
		theirIn.Close()
		theirOut.Close()
	}()
	return p, nil
}

func (p *process) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// kill ends the process, and everything here that waits for it.
func (p *process) kill() {
	p.in.Close()
	p.out.Close()
	go func() { _ = p.program.Kill() }() // a stopped agent must not delay the caller
}

// lost returns the error of an operation whose process failed: its message, or how it ended.
func (o *operation) lost(cause error) error {
	if errors.Is(cause, filewire.ErrProtocol) && !errors.Is(cause, io.EOF) && !errors.Is(cause, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", sandbox.ErrInterrupted, cause)
	}
	o.kill()
	select {
	case <-o.gone:
	case <-o.ctx.Done():
		return o.ctx.Err()
	case <-time.After(grace):
		return fmt.Errorf("%w: its process does not end", sandbox.ErrInterrupted)
	}
	switch {
	case o.err != nil:
		return o.err
	case o.result.Status == sandbox.StatusSandboxLost:
		return sandbox.ErrLost
	case o.result.Status == sandbox.StatusExited:
		return fmt.Errorf("%w: its process ended with exit code %d", sandbox.ErrInterrupted, o.result.ExitCode)
	}
	return fmt.Errorf("%w: its process was ended (%s)", sandbox.ErrInterrupted, o.result.Status)
}

// next reads a frame of the operation; the last one is an error, [failed].
func (o *operation) next() (filewire.Type, []byte, error) {
	typ, payload, err := o.Next()
	if err != nil {
		return 0, nil, o.lost(err)
	}
	if typ != filewire.IsEnded {
		return typ, payload, nil
	}
	var end filewire.Ended
	if err := filewire.Decode(payload, &end); err != nil {
		return 0, nil, o.lost(err)
	}
	own, err := failure(&end)
	if err != nil {
		return 0, nil, o.lost(err)
	}
	return 0, nil, own
}
