package agent

import (
	"fmt"
	"strings"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

// newRequest checks a Cmd and returns its request.
func newRequest(cmd *sandbox.Cmd) (*wire.Request, error) {
	if (len(cmd.Argv) == 0) == (cmd.Python == nil) {
		return nil, fmt.Errorf("%w: give either argv or a python program", sandbox.ErrInvalid)
	}
	argv := cmd.Argv
	if cmd.Python != nil {
		argv = []string{cmd.Python.Name}
		if strings.ContainsAny(cmd.Python.Name, "\n\x00") || cmd.Python.Name == "" {
			return nil, fmt.Errorf("%w: the python program needs a name of one line", sandbox.ErrInvalid)
		}
	}
	if cmd.Lifetime.Detaches() && (cmd.Python != nil || cmd.Control != nil) {
		return nil, fmt.Errorf("%w: a detached program is none of Python's and has no control channel", sandbox.ErrInvalid)
	}
	if cmd.Label != "" && !cmd.Lifetime.Detaches() || len(cmd.Label) > sandbox.MaxLabel {
		return nil, fmt.Errorf("%w: a label is of a detached program and has at most %d bytes", sandbox.ErrInvalid, sandbox.MaxLabel)
	}
	for _, pair := range cmd.Env {
		if strings.Index(pair, "=") < 1 {
			return nil, fmt.Errorf("%w: a variable must be NAME=value", sandbox.ErrInvalid)
		}
	}
	for _, words := range [][]string{{cmd.Dir, cmd.Label}, argv, cmd.Env} {
		for _, word := range words {
			if strings.IndexByte(word, 0) >= 0 {
				return nil, fmt.Errorf("%w: a NUL byte in argv, environment or directory or label", sandbox.ErrInvalid)
			}
		}
	}
	return &wire.Request{Head: newHead(cmd), Dir: cmd.Dir, Label: cmd.Label, Argv: argv, Env: cmd.Env}, nil
}

func newHead(cmd *sandbox.Cmd) wire.RequestHead {
	head := wire.RequestHead{Timeout: max(0, cmd.Timeout.Seconds())}
	set := func(flag wire.Flags, on bool) {
		if on {
			head.Flags |= flag
		}
	}
	set(wire.WithStdin, cmd.Stdin != nil)
	set(wire.WithControl, cmd.Control != nil)
	set(wire.WithControlIn, cmd.Control != nil && cmd.Control.In != nil)
	set(wire.WithTTY, cmd.TTY != nil)
	set(wire.WithAnyDir, strings.HasPrefix(cmd.Dir, "/"))
	set(wire.WithSelf, cmd.Lifetime == sandbox.LifetimeSelf || cmd.Lifetime == sandbox.LifetimeLeft)
	set(wire.WithDetach, cmd.Lifetime.Detaches())
	if cmd.TTY != nil {
		head.TTY = [2]uint16{cmd.TTY.Cols, cmd.TTY.Rows}
	}
	head.Out[0] = bounds(cmd.Capture, cmd.Stdout != nil)
	head.Out[1] = bounds(cmd.Capture, cmd.Stderr != nil)
	return head
}

// bounds returns how much of a stream is forwarded and kept.
func bounds(capture *sandbox.Capture, wanted bool) [2]int64 {
	b := [2]int64{-1, 0}
	if capture != nil {
		b = [2]int64{max(0, capture.Forward), int64(max(0, capture.Tail))}
	}
	if !wanted {
		b[0] = 0
	}
	return b
}

// encode returns the payload of a request, if a frame can hold it.
func encode(r *wire.Request) ([]byte, error) {
	payload := r.Encode()
	if len(payload) > wire.MaxFrame {
		return nil, fmt.Errorf("%w: argv and environment have %d bytes; the maximum is %d", sandbox.ErrInvalid, len(payload), wire.MaxFrame)
	}
	return payload, nil
}
