package shelltool

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

var (
	startSpec = tool.Spec{
		Name: "process_start", Title: "Start a program",
		Description: "Starts a program, or a bash script, that goes on while other calls are made. Its input stays open for process_write; " +
			"process_read gives its output, both streams in the order in which they came.",
		Destructive: true,
	}
	listSpec = tool.Spec{
		Name: "process_list", Title: "List processes", ReadOnly: true, Idempotent: true,
		Description: "Lists the processes of process_start: those that run and the last ones that ended.",
	}
	readSpec = tool.Spec{
		Name: "process_read", Title: "Read from a process", ReadOnly: true, Idempotent: true,
		Description: "Gives a process's state and its output from a byte offset on; continue with next_offset. " +
			"With wait_seconds it waits for new output or the end. The newest 8 MiB are kept.",
	}
	writeSpec = tool.Spec{
		Name: "process_write", Title: "Write to a process", Destructive: true,
		Description: "Writes text to a process's input; eof closes it.",
	}
	signalSpec = tool.Spec{
		Name: "process_signal", Title: "Signal a process", Destructive: true,
		Description: "Sends a signal (TERM, INT, HUP, USR1, …) to a process. KILL ends it and all that it started.",
	}
	resizeSpec = tool.Spec{
		Name: "process_resize", Title: "Resize a terminal", Idempotent: true,
		Description: "Changes the size of the terminal of a process that was started with tty.",
	}
)

// maxEnded is how many processes that have ended are remembered.
const maxEnded = 16

// maxWait is the longest wait of a process_read.
const maxWait = 60 * time.Second

// killGrace is how long process_signal waits for a killed process to be gone.
const killGrace = 5 * time.Second

// StartParams are the parameters of process_start.
type StartParams struct {
	Command
	TTY  bool `json:"tty,omitempty" default:"false" jsonschema:"give the program a terminal"`
	Cols int  `json:"cols,omitempty" default:"80" min:"1" max:"1000" jsonschema:"width of the terminal"`
	Rows int  `json:"rows,omitempty" default:"24" min:"1" max:"1000" jsonschema:"height of the terminal"`
}

// StartProcess begins a program and returns at once. It runs until it ends by
// itself, is killed, or the Shell is closed. ctx bounds only the start.
func (s *Shell) StartProcess(ctx context.Context, p StartParams) (*ProcessInfo, error) {
	size, err := winSize(p.Cols, p.Rows)
	if err != nil {
		return nil, err
	}
	cmd, shown, err := s.command(ctx, p.Command)
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	proc := &process{
		id: newID(), command: shown, cwd: workspacePath(cmd.Dir), tty: p.TTY,
		started: time.Now(), stdin: newInput(p.Stdin), ended: make(chan struct{}),
	}
	if p.TTY {
		cmd.TTY = &size
	}
	if err := s.launch(ctx, proc, cmd); err != nil {
		return nil, fault(err)
	}
	info := proc.info()
	return &info, nil
}

// launch takes a place in the list first, so that many starts at once stay
// within the limit.
func (s *Shell) launch(ctx context.Context, p *process, cmd sandbox.Cmd) (err error) {
	if err := p.openLog(s.opts.Output); err != nil {
		return tool.Errorf(tool.NoSpace, "there is no room on the host for the program's output").Because(err)
	}
	defer func() {
		if err != nil {
			p.discard()
		}
	}()
	release, err := s.reserve()
	if err != nil {
		return err
	}
	defer release()
	runner, err := s.opts.Runner(ctx)
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.writer(), p.writer()
	if p.proc, err = runner.Start(ctx, cmd); err != nil {
		return err
	}
	go p.watch()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	s.forgetOld()
	return nil
}

// reserve counts a process that is about to start.
func (s *Shell) reserve() (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runningLocked()+s.starting >= s.opts.MaxProcesses {
		return nil, tool.Errorf(tool.Limit, "%d processes run already, the most that may; end one with process_signal first", s.opts.MaxProcesses)
	}
	s.starting++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.starting--
	}, nil
}

// forgetOld drops the processes that ended first, beyond maxEnded.
func (s *Shell) forgetOld() {
	over := len(s.processes) - s.runningLocked() - maxEnded
	s.processes = slices.DeleteFunc(s.processes, func(p *process) bool {
		if over <= 0 || p.running() {
			return false
		}
		over--
		p.discard()
		return true
	})
}

// Running counts the processes of StartProcess that have not ended.
func (s *Shell) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runningLocked()
}

func (s *Shell) runningLocked() int {
	n := 0
	for _, p := range s.processes {
		if p.running() {
			n++
		}
	}
	return n
}

func (s *Shell) process(id string) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, tool.Errorf(tool.Closed, "the session is closed; open another one")
	}
	for _, p := range s.processes {
		if p.id == id {
			return p, nil
		}
	}
	return nil, tool.Errorf(tool.NotFound, "there is no such process; process_list names those there are").In("process_id")
}

// ListParams are the parameters of process_list: none.
type ListParams struct{}

// ListResult is the result of process_list, in the order of the starts.
type ListResult struct {
	Processes []ProcessInfo `json:"processes"`
}

// ListProcesses lists the processes that run and the last ones that ended.
func (s *Shell) ListProcesses(context.Context, ListParams) (*ListResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &ListResult{Processes: []ProcessInfo{}}
	for _, p := range s.processes {
		r.Processes = append(r.Processes, p.info())
	}
	return r, nil
}

// ReadParams are the parameters of process_read.
type ReadParams struct {
	ProcessID   string  `json:"process_id"`
	Offset      int64   `json:"offset,omitempty" default:"0" min:"0" jsonschema:"the first byte to read, counted from the beginning of the output"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" default:"0" jsonschema:"how long to wait for new output or the end, 0 to 60; brought into that range"`
}

// ReadResult is the result of process_read. Offsets are bytes.
type ReadResult struct {
	ProcessInfo
	Output     string `json:"output"`
	Offset     int64  `json:"offset" jsonschema:"where output begins"`
	NextOffset int64  `json:"next_offset" jsonschema:"the offset that continues"`
	LostBytes  int64  `json:"lost_bytes,omitempty" jsonschema:"bytes from the asked offset on that are no longer kept"`
	Truncated  bool   `json:"truncated,omitempty" jsonschema:"there is more to read already"`
}

// ReadProcess gives output from an offset on. It waits, at most for the time
// asked, only while there is none and the process runs.
func (s *Shell) ReadProcess(ctx context.Context, p ReadParams) (*ReadResult, error) {
	wait, notices, err := clamp("wait_seconds", p.WaitSeconds, 0, maxWait)
	if err != nil {
		return nil, err
	}
	proc, err := s.process(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if _, end := proc.log.Bounds(); p.Offset < 0 || p.Offset > end {
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

// waitFor blocks until there is output beyond the offset, the end, or the time is over.
func (p *process) waitFor(ctx context.Context, offset int64, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		changed := p.changed()
		if _, end := p.log.Bounds(); end > offset || !p.running() || wait == 0 {
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
	info := p.info() // before the output: an end that it tells has all of it
	data, from, err := p.log.Read(offset, pageBytes+4)
	if err != nil {
		return nil, tool.Errorf(tool.Internal, "the process's output can't be read").Because(err)
	}
	data = page(data, pageBytes)
	r := &ReadResult{
		ProcessInfo: info, Output: capture.Text(data), Offset: from,
		NextOffset: from + int64(len(data)), LostBytes: from - offset,
	}
	_, end := p.log.Bounds()
	r.Truncated = r.NextOffset < end
	return r, nil
}

// WriteParams are the parameters of process_write.
type WriteParams struct {
	ProcessID string `json:"process_id"`
	Data      string `json:"data,omitempty" jsonschema:"text for the program's input, at most 48000 characters; on a terminal \r is the enter key and \u0003 is control-C"`
	EOF       bool   `json:"eof,omitempty" default:"false" jsonschema:"close the input afterwards"`
}

// WriteResult is the result of process_write.
type WriteResult struct {
	ProcessID    string `json:"process_id"`
	WrittenBytes int    `json:"written_bytes"`
	State        string `json:"state"`
}

// WriteProcess hands text to a process's input and doesn't wait until it is read.
func (s *Shell) WriteProcess(_ context.Context, p WriteParams) (*WriteResult, error) {
	if err := checkText("data", p.Data, s.opts.MaxText); err != nil {
		return nil, err
	}
	proc, err := s.process(p.ProcessID)
	if err != nil {
		return nil, err
	}
	switch open, room := proc.stdin.add(p.Data, p.EOF); {
	case !proc.running():
		return nil, tool.Errorf(tool.Conflict, "the process has ended; process_read gives its last output").In("process_id")
	case !open:
		return nil, tool.Errorf(tool.Conflict, "the process's input was closed before").In("process_id")
	case !room:
		return nil, tool.Errorf(tool.Limit, "the program has not read its last %d bytes of input; write again when it has", maxUnread).In("data")
	}
	return &WriteResult{ProcessID: p.ProcessID, WrittenBytes: len(p.Data), State: proc.info().State}, nil
}

// SignalParams are the parameters of process_signal.
type SignalParams struct {
	ProcessID string `json:"process_id"`
	Signal    string `json:"signal" jsonschema:"name without SIG: TERM, KILL, INT, HUP, USR1, …"`
}

// SignalProcess sends a signal; KILL ends all that the process started and is
// waited for. A process that has ended is no error: its state tells.
func (s *Shell) SignalProcess(ctx context.Context, p SignalParams) (*ProcessInfo, error) {
	if unix.SignalNum("SIG"+p.Signal) == 0 {
		return nil, invalid("signal", "signal is none that exists; give a name without SIG, such as TERM, KILL, INT, HUP or USR1")
	}
	proc, err := s.process(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if err := proc.signal(ctx, p.Signal); err != nil {
		return nil, err
	}
	info := proc.info()
	return &info, nil
}

func (p *process) signal(ctx context.Context, name string) error {
	if !p.running() {
		return nil
	}
	if name != "KILL" {
		err := p.proc.Signal(name)
		if errors.Is(err, sandbox.ErrInvalid) {
			return invalid("signal", "the sandbox doesn't know this signal; TERM, KILL, INT, HUP and USR1 are known")
		}
		return fault(err)
	}
	if err := p.kill(); err != nil {
		return fault(err)
	}
	ctx, cancel := context.WithTimeout(ctx, killGrace)
	defer cancel()
	_ = p.await(ctx) // the state tells whether it is gone
	return nil
}

// ResizeParams are the parameters of process_resize.
type ResizeParams struct {
	ProcessID string `json:"process_id"`
	Cols      int    `json:"cols" min:"1" max:"1000"`
	Rows      int    `json:"rows" min:"1" max:"1000"`
}

// ResizeProcess changes a terminal's size; a process without one is unsupported.
func (s *Shell) ResizeProcess(_ context.Context, p ResizeParams) (*ProcessInfo, error) {
	size, err := winSize(p.Cols, p.Rows)
	if err != nil {
		return nil, err
	}
	proc, err := s.process(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if !proc.tty {
		return nil, tool.Errorf(tool.Unsupported, "the process has no terminal; start it with tty").In("process_id")
	}
	if proc.running() {
		if err := proc.proc.Resize(size); err != nil {
			return nil, fault(err)
		}
	}
	info := proc.info()
	return &info, nil
}

// winSize checks a terminal's size; zero takes the default.
func winSize(cols, rows int) (sandbox.WinSize, error) {
	if cols == 0 {
		cols = 80
	}
	if rows == 0 {
		rows = 24
	}
	if cols < 1 || cols > 1000 {
		return sandbox.WinSize{}, invalid("cols", "cols is %d; it must be from 1 to 1000", cols)
	}
	if rows < 1 || rows > 1000 {
		return sandbox.WinSize{}, invalid("rows", "rows is %d; it must be from 1 to 1000", rows)
	}
	return sandbox.WinSize{Cols: uint16(cols), Rows: uint16(rows)}, nil
}
