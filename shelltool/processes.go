package shelltool

import (
	"context"
	"slices"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

var startSpec = tool.Spec{
	Name: "process_start", Title: "Start a program",
	Description: "Starts a program, or a bash script, that goes on while other calls are made. Its input stays open for process_write; " +
		"process_read gives its output, both streams in the order in which they came.",
	Destructive: true,
}

var listSpec = tool.Spec{
	Name: "process_list", Title: "List processes", ReadOnly: true, Idempotent: true,
	Description: "Lists the processes of process_start: those that run and the last ones that ended.",
}

// maxEnded is how many processes that have ended are remembered.
const maxEnded = 16

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
	if p.TTY {
		cmd.TTY = &size
	}
	proc := newProcess(shown, cmd, p.Stdin)
	if err := s.launch(ctx, proc, cmd); err != nil {
		return nil, toolerr.Of(err)
	}
	// A look at how it begins: one that fails at once is told as ended, and what
	// the caller does next doesn't overtake the program's own start.
	_ = proc.waitFor(ctx, 0, startLook) // it runs, whatever becomes of the look
	info := proc.info()
	return &info, nil
}

// startLook is how long process_start waits for the first output or the end.
const startLook = 100 * time.Millisecond

// launch takes a place first, so that many starts at once stay within the limit.
func (s *Shell) launch(ctx context.Context, p *process, cmd sandbox.Cmd) error {
	if err := s.reserve(); err != nil {
		return err
	}
	err := s.startIn(ctx, p, cmd, true)
	s.settle(p, err == nil)
	return err
}

// startIn starts the program. What it writes goes to the process's log, if that is
// wanted, and to the command's own writers.
func (s *Shell) startIn(ctx context.Context, p *process, cmd sandbox.Cmd, logged bool) error {
	if err := p.openLog(s.opts.Output); err != nil {
		return tool.Errorf(tool.NoSpace, "there is no room on the host for the program's output").Because(err)
	}
	runner, err := s.opts.Runner(ctx)
	if err != nil {
		return err
	}
	cmd.Stdin = p.stdin
	if logged {
		cmd.Stdout, cmd.Stderr = p.writer(cmd.Stdout), p.writer(cmd.Stderr)
	}
	if p.proc, err = runner.Start(ctx, cmd); err != nil {
		return err
	}
	go p.watch()
	return nil
}

func (s *Shell) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runningLocked()+s.starting >= s.opts.MaxProcesses {
		return tool.Errorf(tool.Limit, "%d processes run already, the most that may; end one with process_signal first", s.opts.MaxProcesses)
	}
	s.starting++
	return nil
}

// settle turns a reserved place into a process, or gives it back.
func (s *Shell) settle(p *process, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting--
	if !started {
		p.discard()
		return
	}
	s.processes = append(s.processes, p)
	s.forgetOld()
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
