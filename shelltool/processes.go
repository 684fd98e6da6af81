package shelltool

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

var startSpec = tool.Spec{
	Name: "process_start", Title: "Start a program",
	Description: "Start a program, or a bash script, that keeps running while you make other calls. Its input stays open for process_write; " +
		"process_read returns its output, both streams in the order in which they were read; a script that begins with exec 2>&1 keeps the order of writing. With wait_port it returns once the program " +
		"listens on that TCP port, as a server does when it is ready: listens says so.",
	Destructive: true, Effect: tool.LastingEffect,
}

var listSpec = tool.Spec{
	Name: "process_list", Title: "List processes", ReadOnly: true, Idempotent: true,
	Description: "List all processes of the session: those that run, and those that ended last.",
}

// maxEnded is the maximum of ended processes that are remembered.
const maxEnded = 16

// StartParams are the parameters of process_start.
type StartParams struct {
	Command
	TTY  bool `json:"tty,omitempty" default:"false" jsonschema:"give the program a terminal"`
	Cols int  `json:"cols,omitempty" default:"80" min:"1" max:"1000" jsonschema:"width of the terminal"`
	Rows int  `json:"rows,omitempty" default:"24" min:"1" max:"1000" jsonschema:"height of the terminal"`

	WaitPort    int     `json:"wait_port,omitempty" min:"1" max:"65535" jsonschema:"return only once a program listens on this TCP port of the sandbox, the program has ended, or wait_seconds are over"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" default:"30" jsonschema:"how long to wait for wait_port, 0 to 60; clamped to that range"`
}

// StartProcess starts a program and returns at once, or when it listens on WaitPort. The program
// runs until it ends by itself, is killed, or the Shell is closed. If the sandbox supports programs
// that outlive their handle, it also outlives the death of this process, see [Shell.Reclaim]. ctx
// bounds only the start.
func (s *Shell) StartProcess(ctx context.Context, p StartParams) (*ProcessInfo, error) {
	size, err := winSize(p.Cols, p.Rows)
	if err != nil {
		return nil, err
	}
	cmd, shown, err := s.command(ctx, p.Command)
	if err != nil {
		return nil, err
	}
	if p.TTY {
		cmd.TTY = &size
	}
	port, notices, err := p.portWait()
	if err != nil {
		return nil, err
	}
	// Look at its beginning: a program that fails at once is reported as ended, and the caller's
	// next action doesn't overtake the program's own start.
	info, err := s.launch(ctx, newProcess(shown, cmd, p.Stdin), cmd, launch{p.Command, (*process).begins, port})
	if err == nil {
		info.Notices = append(notices, info.Notices...)
	}
	return info, err
}

// portWait returns the port that the call waits for.
func (p StartParams) portWait() (w PortWait, notices []string, err error) {
	if p.WaitPort == 0 {
		return w, nil, nil
	}
	if p.WaitPort < 1 || p.WaitPort > math.MaxUint16 {
		return w, nil, invalid("wait_port", "wait_port is %d; it must be 1 to %d", p.WaitPort, math.MaxUint16)
	}
	w.Port = uint16(p.WaitPort)
	w.Time, notices, err = clamp("wait_seconds", p.WaitSeconds, 0, maxWait)
	w.Time = max(w.Time, time.Millisecond) // 0 is one look
	return w, notices, err
}

// StartOptions are options of [Shell.Start]; zero works.
type StartOptions struct {
	Open   bool     // keep its input open, like a terminal's; otherwise it is empty
	Port   PortWait // return when a program listens there
	AtOnce bool     // return as soon as the program runs; otherwise wait a moment for its end
	Tag    string   // see [ProcessInfo]
	// Hold applies to the first reader, which attaches after the start: see [AttachOptions].
	Hold time.Duration
}

// Start starts a program as a process. The caller has checked it: the bounds of process_start on
// arguments and variables don't apply. The command's own streams must be nil.
func (s *Shell) Start(ctx context.Context, cmd sandbox.Cmd, opts StartOptions) (*ProcessInfo, error) {
	if len(opts.Tag) > MaxTag {
		return nil, invalid("tag", "tag has %d bytes; the maximum is %d", len(opts.Tag), MaxTag)
	}
	p := newProcess(brief(cmd.Argv), cmd, "")
	p.tag = opts.Tag
	if !opts.Open && cmd.TTY == nil {
		p.stdin.add("", true)
	}
	if opts.Hold > 0 {
		_, p.awaited = p.hold(0, opts.Hold)
	}
	look := (*process).await
	if opts.AtOnce {
		look = func(*process, context.Context) error { return nil }
	}
	return s.launch(ctx, p, cmd, launch{Command{}, look, opts.Port})
}

// MaxTag bounds a process's tag, in bytes.
const MaxTag = 1 << 10

// launch describes how to start a process.
type launch struct {
	said Command                               // as given by its caller
	look func(*process, context.Context) error // waits a moment if there is no port to wait for
	port PortWait
}

// launch starts a process and waits a moment for its first output or its end.
func (s *Shell) launch(ctx context.Context, proc *process, cmd sandbox.Cmd, how launch) (*ProcessInfo, error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := s.chooseShell(ctx, how.said, &cmd, proc.command); err != nil {
		return nil, toolerr.Of(err)
	}
	look := how.moment
	if how.port.Port != 0 {
		if look, err = s.lookAtPort(ctx, how.port); err != nil {
			return nil, toolerr.Of(err)
		}
	}
	if err := s.place(ctx, proc, cmd); err != nil {
		return nil, toolerr.Of(err)
	}
	info := look(ctx, proc)
	return &info, nil
}

// moment waits for a moment. The process runs on, whatever the result.
func (l launch) moment(ctx context.Context, p *process) ProcessInfo {
	short, cancel := context.WithTimeout(ctx, startLook)
	defer cancel()
	_ = l.look(p, short)
	return p.info()
}

// startLook is how long a start waits: process_start for the first output or the end, others for
// the end.
const startLook = 100 * time.Millisecond

// begins waits for the first output or the end.
func (p *process) begins(ctx context.Context) error { return p.waitFor(ctx, 0, startLook) }

// place reserves a place before the start, so that simultaneous starts stay within the limit.
func (s *Shell) place(ctx context.Context, p *process, cmd sandbox.Cmd) error {
	if err := s.reserve(); err != nil {
		return err
	}
	if s.opts.Outlives != nil && s.opts.Outlives() {
		if cmd.Lifetime == sandbox.LifetimeSelf {
			cmd.Lifetime = sandbox.LifetimeLeft
		} else {
			cmd.Lifetime = sandbox.LifetimeDetached
		}
		cmd.Label = p.label(cmd, s.origin(ctx)).encode()
	}
	err := s.startIn(ctx, p, cmd, true)
	s.settle(p, err == nil)
	return err
}

// origin names the call of a context.
func (s *Shell) origin(ctx context.Context) Origin {
	if s.opts.Origin == nil {
		return Origin{}
	}
	return s.opts.Origin(ctx)
}

// label returns the label by which another Shell finds the program.
func (p *process) label(cmd sandbox.Cmd, from Origin) label {
	return label{ID: p.id, Command: p.command, Cwd: p.cwd, TTY: cmd.TTY, Tag: p.tag, Started: p.started, Timeout: cmd.Timeout, Origin: from}
}

// startIn starts the program. Its output goes to the process's log, if logged
// is set, and to the command's own writers.
func (s *Shell) startIn(ctx context.Context, p *process, cmd sandbox.Cmd, logged bool) error {
	p.openLog(s.opts.Output, 0)
	runner, err := s.opts.Runner(ctx)
	if err != nil {
		return err
	}
	if cmd.TTY != nil || !p.stdin.empty() {
		cmd.Stdin = p.stdin
	}
	if logged {
		cmd.Stdout, cmd.Stderr = p.writer(stdoutStream, cmd.Stdout), p.writer(stderrStream, cmd.Stderr)
	}
	if s.opts.Ended != nil {
		begun := context.WithoutCancel(ctx)
		p.onEnd = func(info ProcessInfo, res sandbox.Result) { s.opts.Ended(begun, info, res) }
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
		return tool.Errorf(tool.Limit, "%d processes already run, the maximum; end one first, with process_signal or `wisbox kill`", s.opts.MaxProcesses)
	}
	s.starting++
	return nil
}

// settle turns a reserved place into a process, or frees it.
func (s *Shell) settle(p *process, started bool) {
	s.mu.Lock()
	s.starting--
	if started {
		s.processes = append(s.processes, p)
		s.forgetOld()
	}
	s.mu.Unlock()
	if !started {
		p.discard()
		return
	}
	p.list()
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

// Running counts the processes that have not ended.
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
	if err := s.opts.Known(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processLocked(id)
}

// steered is like process, for a call that changes the process.
func (s *Shell) steered(id string) (*process, error) {
	p, err := s.process(id)
	if err == nil {
		err = s.opts.Awake()
	}
	return p, err
}

// reader is like process, but keeps the log open until done is called, even if the process is
// forgotten meanwhile.
func (s *Shell) reader(id string) (_ *process, done func(), err error) {
	if err := s.opts.Known(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.processLocked(id)
	if err != nil {
		return nil, nil, err
	}
	return p, p.reading(), nil
}

func (s *Shell) processLocked(id string) (*process, error) {
	if s.closed {
		return nil, tool.Errorf(tool.Closed, "the session is closed; open another one")
	}
	for _, p := range s.processes {
		if p.id == id {
			return p, nil
		}
	}
	return nil, tool.Errorf(tool.NotFound, "process not found; process_list lists the processes").In("process_id")
}

// ListParams are the parameters of process_list. There are none.
type ListParams struct{}

// ListResult is the result of process_list, in the order of the starts.
type ListResult struct {
	Processes []ProcessInfo `json:"processes"`
}

// ListProcesses lists the running processes and those that ended last.
func (s *Shell) ListProcesses(context.Context, ListParams) (*ListResult, error) {
	if err := s.opts.Known(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &ListResult{Processes: []ProcessInfo{}}
	for _, p := range s.processes {
		r.Processes = append(r.Processes, p.info())
	}
	return r, nil
}
