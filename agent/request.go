package agent

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
)

// request is a run frame: the fixed part, then words.
type request struct {
	head  requestHead
	words []string // directory, argv, environment
}

// requestHead is the fixed part, big-endian as it stands here.
type requestHead struct {
	Flags   uint8
	Timeout float64 // seconds, 0 is none
	TTY     [2]uint16
	Out     [2][2]int64 // stdout, stderr: bytes to forward (-1 all), bytes of tail to keep
	Argc    uint32
	Python  [32]byte // key of the source, or zero
}

// Flags of a request.
const (
	withStdin = 1 << iota
	withControl
	withControlIn
	withTTY
	withNotify // a started frame is wanted
)

func newRequest(cmd *sandbox.Cmd) (*request, error) {
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
	for _, pair := range cmd.Env {
		if strings.Index(pair, "=") < 1 {
			return nil, fmt.Errorf("%w: a variable must be NAME=value", sandbox.ErrInvalid)
		}
	}
	req := &request{head: newHead(cmd, len(argv))}
	req.words = append(append(append(req.words, cmd.Dir), argv...), cmd.Env...)
	for _, word := range req.words {
		if strings.IndexByte(word, 0) >= 0 {
			return nil, fmt.Errorf("%w: a NUL byte in argv, environment or directory", sandbox.ErrInvalid)
		}
	}
	return req, nil
}

func newHead(cmd *sandbox.Cmd, argc int) requestHead {
	head := requestHead{Argc: uint32(argc), Timeout: max(0, cmd.Timeout.Seconds())}
	set := func(flag uint8, on bool) {
		if on {
			head.Flags |= flag
		}
	}
	set(withStdin, cmd.Stdin != nil)
	set(withControl, cmd.Control != nil)
	set(withControlIn, cmd.Control != nil && cmd.Control.In != nil)
	set(withTTY, cmd.TTY != nil)
	if cmd.TTY != nil {
		head.TTY = [2]uint16{cmd.TTY.Cols, cmd.TTY.Rows}
	}
	head.Out[0] = bounds(cmd.Capture, cmd.Stdout != nil)
	head.Out[1] = bounds(cmd.Capture, cmd.Stderr != nil)
	return head
}

// bounds gives what of a stream is forwarded and kept.
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

func (r *request) encode() ([]byte, error) {
	payload, err := binary.Append(nil, binary.BigEndian, r.head)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrInvalid, err)
	}
	for _, word := range r.words {
		payload = append(append(payload, word...), 0)
	}
	if len(payload) > maxFrame {
		return nil, fmt.Errorf("%w: argv and environment are %d bytes, at most %d are possible", sandbox.ErrInvalid, len(payload), maxFrame)
	}
	return payload, nil
}
