package shelltool

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/sandbox"
)

// Bounds of a process's kept output: on disk, or in memory if there is no disk.
const (
	logBytes       = capture.DefaultSpill
	logBytesMemory = 256 << 10
	logBytesFew    = 16 << 10 // for which no file is made
)

// process is a program that was started in the background.
type process struct {
	id      string
	command []string
	cwd     string
	tty     bool
	tag     string
	started time.Time

	proc  sandbox.Process
	stdin *input
	log   *outputLog
	file  io.Closer // behind log, or nil
	ended chan struct{}
	onEnd func(ProcessInfo, sandbox.Result) // may be nil

	mu      sync.Mutex
	news    chan struct{} // closed on new output, nil without a waiter
	killed  bool          // by us, on request
	listed  bool          // clients know of it
	readers int           // of log
	gone    bool          // log is closed with its last reader
	over    bool          // result is set
	result  sandbox.Result
	flushes []*textWriter
	holders map[*holder]bool
	awaited func() // removes the place of the first holder
}

func newProcess(shown []string, cmd sandbox.Cmd, stdin string) *process {
	return &process{
		id: newID(), command: shown, cwd: workspacePath(cmd.Dir), tty: cmd.TTY != nil,
		started: time.Now(), stdin: newInput(stdin, cmd.TTY != nil), ended: make(chan struct{}),
	}
}

// openLog opens the log for the process's output, which begins at an offset.
func (p *process) openLog(root *os.Root, at int64) {
	if root == nil {
		p.log = newOutputLog(capture.Memory(logBytesMemory), logBytesMemory, at)
		return
	}
	f := capture.NewLater(logBytesFew, func() (*os.File, error) { return nameless(root, p.id+".log") })
	p.file, p.log = f, newOutputLog(f, logBytes, at)
}

// nameless creates a file without a name, so that a crash leaves nothing of it.
func nameless(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := root.Remove(name); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// discard closes the log once nobody reads it.
func (p *process) discard() {
	p.stdin.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.closeLog()
}

func (p *process) closeLog() {
	if p.gone && p.readers == 0 && p.file != nil {
		_ = p.file.Close()
	}
}

// reading keeps the log open until done is called.
func (p *process) reading() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.readers--
		p.closeLog()
	}
}

// writer returns the writer of one stream. Both streams go to the same log, in the order of their
// arrival but never into the middle of each other's characters, and each to its own writer, if any.
func (p *process) writer(s stream, own io.Writer) io.Writer {
	w := &textWriter{process: p, stream: s}
	p.flushes = append(p.flushes, w)
	if own == nil {
		return w
	}
	return io.MultiWriter(own, w)
}

type textWriter struct {
	process *process
	stream  stream
	held    []byte // the beginning of a character
}

func (w *textWriter) Write(b []byte) (int, error) {
	n := len(b)
	if len(w.held) > 0 {
		b = append(w.held, b...)
	}
	whole := capture.WholePrefix(b)
	w.held = append([]byte(nil), b[whole:]...)
	w.process.emit(w.stream, b[:whole])
	return n, nil
}

func (p *process) emit(s stream, b []byte) {
	if len(b) == 0 {
		return
	}
	p.awaitHolders(int64(len(b)))
	p.log.write(s, b)
	p.announce()
}

func (p *process) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.news != nil {
		close(p.news)
		p.news = nil
	}
}

// changed is closed on the next output or at the end.
func (p *process) changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.news == nil {
		p.news = make(chan struct{})
	}
	return p.news
}

// watch waits for the end and records it.
func (p *process) watch() {
	res, err := p.proc.Wait(context.Background())
	if err != nil {
		res = sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}
	}
	for _, w := range p.flushes {
		p.emit(w.stream, w.held)
	}
	p.stdin.close()
	p.mu.Lock()
	if res.Duration == 0 {
		res.Duration = time.Since(p.started)
	}
	if p.killed && res.Status == sandbox.StatusCancelled {
		res.Status, res.Signal = sandbox.StatusSignaled, "KILL"
	}
	p.result, p.over = res, true
	known := p.listed
	p.mu.Unlock()
	if known {
		p.tellEnd()
	}
	close(p.ended)
	p.announce()
}

// list makes the process known to clients. Its end is reported once, even if it came before.
func (p *process) list() {
	p.mu.Lock()
	p.listed = true
	over := p.over
	p.mu.Unlock()
	if over {
		p.tellEnd()
	}
}

// tellEnd reports the end. It is called once result is set.
func (p *process) tellEnd() {
	if p.onEnd != nil {
		info := p.state()
		info.end(p.result)
		p.onEnd(info, p.result)
	}
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) kill() error {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	return p.proc.Kill()
}

func (p *process) await(ctx context.Context) error {
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stateRunning is the state of a running process. The state of an ended one is its status.
const stateRunning = "running"

// ProcessInfo describes a process. A running one has no exit code and no signal.
type ProcessInfo struct {
	ProcessID    string   `json:"process_id"`
	PID          int      `json:"pid,omitempty" jsonschema:"its process ID inside the sandbox, if known"`
	Command      []string `json:"command" jsonschema:"the program and its arguments; for a script, only the shell"`
	Cwd          string   `json:"cwd"`
	TTY          bool     `json:"tty,omitempty"`
	Tag          string   `json:"tag,omitempty" jsonschema:"the name that its starter gave it"`
	State        string   `json:"state" jsonschema:"running, or how it ended: exited, signaled, timed_out, oom_killed, pids_limit, disk_limit, cancelled or sandbox_lost"`
	ExitCode     *int     `json:"exit_code,omitempty"`
	Signal       string   `json:"signal,omitempty"`
	StartedAt    string   `json:"started_at"`
	DurationMS   int64    `json:"duration_ms"`
	OutputBytes  int64    `json:"output_bytes" jsonschema:"bytes of all its output so far"`
	DroppedBytes int64    `json:"dropped_bytes,omitempty" jsonschema:"the oldest of them, which are no longer kept"`
	Listens      *bool    `json:"listens,omitempty" jsonschema:"in the answer of a start with wait_port: whether a program listens there"`
	Notices      []string `json:"notices,omitempty"`
}

func (p *process) info() ProcessInfo {
	info := p.state()
	if !p.running() {
		info.end(p.result)
	}
	return info
}

// state describes the process as a running one.
func (p *process) state() ProcessInfo {
	start, written := p.log.bounds()
	info := ProcessInfo{
		ProcessID: p.id, Command: p.command, Cwd: p.cwd, TTY: p.tty, Tag: p.tag, State: stateRunning,
		StartedAt: p.started.UTC().Format("2006-01-02T15:04:05.000Z"), OutputBytes: written, DroppedBytes: start,
		DurationMS: time.Since(p.started).Milliseconds(),
	}
	if n, ok := sandbox.As[sandbox.Numbered](p.proc); ok {
		info.PID = n.PID()
	}
	return info
}

// end sets the fields for the end of the process.
func (i *ProcessInfo) end(res sandbox.Result) {
	i.State, i.ExitCode, i.Signal = string(res.Status), &res.ExitCode, res.Signal
	i.DurationMS, i.Notices = res.Duration.Milliseconds(), res.Notices
}
