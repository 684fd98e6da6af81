package shelltool

import (
	"context"
	"fmt"
	"time"

	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/tool"
)

var readSpec = tool.Spec{
	Name: "process_read", Title: "Read from a process", ReadOnly: true, Idempotent: true,
	Description: "Return a process's state and its output from a byte offset; continue with next_offset. " +
		"With wait_seconds it waits for new output or the end. The newest 8 MiB are kept.",
}

var writeSpec = tool.Spec{
	Name: "process_write", Title: "Write to a process", Destructive: true, Effect: tool.LastingEffect,
	Description: "Write text to a process's input; eof closes it.",
}

// maxWait is the longest wait of a process_read.
const maxWait = 60 * time.Second

// ReadParams are the parameters of process_read.
type ReadParams struct {
	ProcessID   string  `json:"process_id" jsonschema:"as process_start gave it"`
	Offset      int64   `json:"offset,omitempty" default:"0" min:"0" jsonschema:"the first byte to read, counted from the beginning of the output"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" default:"0" jsonschema:"how long to wait for new output or the end, 0 to 60; clamped to that range"`
}

// ReadResult is the result of process_read. Offsets are bytes.
type ReadResult struct {
	ProcessInfo
	Output     string `json:"output"`
	Offset     int64  `json:"offset" jsonschema:"where output begins"`
	NextOffset int64  `json:"next_offset" jsonschema:"the offset to continue with"`
	LostBytes  int64  `json:"lost_bytes,omitempty" jsonschema:"bytes after the requested offset that are no longer kept"`
	Truncated  bool   `json:"truncated,omitempty" jsonschema:"there is more to read already"`
}

// ReadProcess returns output from an offset. It waits, at most for WaitSeconds, while there is none
// and the process runs.
func (s *Shell) ReadProcess(ctx context.Context, p ReadParams) (*ReadResult, error) {
	wait, notices, err := clamp("wait_seconds", p.WaitSeconds, 0, maxWait)
	if err != nil {
		return nil, err
	}
	proc, err := s.process(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if _, end := proc.log.bounds(); p.Offset < 0 || p.Offset > end {
		return nil, invalid("offset", "offset is %d; the output has %d bytes so far: continue with next_offset", p.Offset, end)
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := proc.waitFor(ctx, p.Offset, wait); err != nil {
		return nil, tool.AsError(err)
	}
	r, err := proc.read(p.Offset)
	if err != nil {
		return nil, err
	}
	r.Notices = append(notices, r.Notices...)
	return r, nil
}

// waitFor blocks until there is output beyond the offset, the process has ended, or the time is over.
func (p *process) waitFor(ctx context.Context, offset int64, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		changed := p.changed()
		if _, end := p.log.bounds(); end > offset || !p.running() || wait == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *process) read(offset int64) (*ReadResult, error) {
	info := p.info() // before the output, so that an ended process has all of it
	data, from, err := p.log.ring.Read(offset, pageBytes+4)
	if err != nil {
		return nil, tool.Errorf(tool.Internal, "the process's output can't be read").Because(err)
	}
	data = page(data, pageBytes)
	r := &ReadResult{
		ProcessInfo: info, Output: capture.Text(data), Offset: from,
		NextOffset: from + int64(len(data)), LostBytes: from - offset,
	}
	_, end := p.log.bounds()
	r.Truncated = r.NextOffset < end
	return r, nil
}

// WriteParams are the parameters of process_write.
type WriteParams struct {
	ProcessID string `json:"process_id" jsonschema:"as process_start gave it"`
	Data      string `json:"data,omitempty" jsonschema:"text for the program's input, at most 48000 characters; on a terminal \\r is the enter key and \\u0003 is control-C"`
	EOF       bool   `json:"eof,omitempty" default:"false" jsonschema:"close the input afterwards"`
}

// WriteResult is the result of process_write.
type WriteResult struct {
	ProcessID    string `json:"process_id"`
	WrittenBytes int    `json:"written_bytes"`
	State        string `json:"state"`

	Notices []string `json:"notices,omitempty"`
}

// Input passes bytes to a process's input and, if end is set, closes it afterwards. It waits for
// room while the program doesn't read, until ctx ends.
func (s *Shell) Input(ctx context.Context, id string, data []byte, end bool) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	proc, err := s.process(id)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), maxUnread/2)
		if !proc.stdin.put(ctx, data[:n]) {
			return proc.noInput(ctx)
		}
		data = data[n:]
	}
	if open, _ := proc.stdin.add("", end); !open {
		return proc.noInput(ctx)
	}
	return nil
}

// noInput returns an error that explains why a process takes no input.
func (p *process) noInput(ctx context.Context) error {
	switch {
	case !p.running():
		return tool.Errorf(tool.Conflict, "the process has ended; process_read gives its last output").In("process_id")
	case ctx.Err() != nil:
		return tool.AsError(ctx.Err())
	}
	return tool.Errorf(tool.Conflict, "the process's input is already closed").In("process_id")
}

// WriteProcess passes text to a process's input and doesn't wait until it is read.
func (s *Shell) WriteProcess(_ context.Context, p WriteParams) (*WriteResult, error) {
	if err := checkText("data", p.Data, s.opts.MaxText); err != nil {
		return nil, err
	}
	proc, err := s.steered(p.ProcessID)
	if err != nil {
		return nil, err
	}
	switch open, room := proc.stdin.add(p.Data, p.EOF); {
	case !open, !proc.running():
		return nil, proc.noInput(context.Background())
	case !room:
		return nil, tool.Errorf(tool.Limit, "the program has not read its last %d bytes of input; write again later", maxUnread).In("data")
	}
	r := &WriteResult{ProcessID: p.ProcessID, WrittenBytes: len(p.Data), State: proc.info().State}
	if proc.stdin.tooLong() {
		r.Notices = []string{fmt.Sprintf("a line has more than %d bytes: if the program reads whole lines, its terminal drops the rest of that line; "+
			"write shorter lines, or start the program without tty", maxLine)}
	}
	return r, nil
}
