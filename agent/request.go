package agent

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
)

// request is a run frame: head as a line of JSON, then words.
type request struct {
	head  requestHead
	words []string // argv, then environment
}

type requestHead struct {
	Argc    int         `json:"argc"`
	Dir     string      `json:"dir"`
	Timeout float64     `json:"timeout"` // seconds, 0 is none
	Stdin   bool        `json:"stdin"`
	Control int         `json:"control"` // 0 none, 1 with an empty In, 2 with both
	TTY     []uint16    `json:"tty"`     // columns and rows, or null
	Python  string      `json:"python"`  // key of the source, or ""
	Out     [2][2]int64 `json:"out"`     // stdout, stderr: bytes to forward (-1 all), bytes of tail to keep
	Notify  bool        `json:"notify"`  // a started frame is wanted
}

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
	req.words = append(append(req.words, argv...), cmd.Env...)
	for _, word := range append(req.words, cmd.Dir) {
		if strings.IndexByte(word, 0) >= 0 {
			return nil, fmt.Errorf("%w: a NUL byte in argv, environment or directory", sandbox.ErrInvalid)
		}
	}
	return req, nil
}

func newHead(cmd *sandbox.Cmd, argc int) requestHead {
	head := requestHead{Argc: argc, Dir: cmd.Dir, Timeout: max(0, cmd.Timeout.Seconds()), Stdin: cmd.Stdin != nil}
	if cmd.TTY != nil {
		head.TTY = []uint16{cmd.TTY.Cols, cmd.TTY.Rows}
	}
	if cmd.Control != nil {
		head.Control = 1
		if cmd.Control.In != nil {
			head.Control = 2
		}
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
	payload, err := json.Marshal(r.head)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrInvalid, err)
	}
	payload = append(payload, '\n')
	for _, word := range r.words {
		payload = append(append(payload, word...), 0)
	}
	if len(payload) > maxFrame {
		return nil, fmt.Errorf("%w: argv and environment are %d bytes, at most %d are possible", sandbox.ErrInvalid, len(payload), maxFrame)
	}
	return payload, nil
}
