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

// What is kept of a process's output, on disk or without one in memory.
const (
	logBytes       = capture.DefaultSpill
	logBytesMemory = 256 << 10
)

// process is a program that was started and goes on.
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
	file  *os.File // behind log, or nil
	ended chan struct{}
	onEnd func(ProcessInfo, sandbox.Result) // nil tells nobody

	mu      sync.Mutex
	news    chan struct{} // closed on new output, nil without a waiter
	killed  bool          // by us, on request
	listed  bool          // others know of it
	readers int           // of log
	gone    bool          // log goes with its last reader
	over    bool          // result is set
	result  sandbox.Result
	flushes []*textWriter
	holders map[*holder]bool
	awaited func() // takes away the place of the first holder
}

func newProcess(shown []string, cmd sandbox.Cmd, stdin string) *process {
	return &process{
		id: newID(), command: shown, cwd: workspacePath(cmd.Dir), tty: cmd.TTY != nil,
		started: time.Now(), stdin: newInput(stdin), ended: make(chan struct{}),
	}
}

// openLog gives the process a place for its output. The file has no name, so
// that nothing stays of it after a crash.
// It begins at an offset.
func (p *process) openLog(root *os.Root, at int64) error {
	if root == nil {
		p.log = newOutputLog(capture.Memory(logBytesMemory), logBytesMemory, at)
		return nil
	}
	name := p.id + ".log"
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := root.Remove(name); err != nil {
		_ = f.Close()
		return err
	}
	p.file, p.log = f, newOutputLog(f, logBytes, at)
	return nil
}

// discard gives the log up once nobody reads it.
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

// reading keeps the log until done.
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

// writer is for one stream. Both go to the same log, in the order in which they
// come, but never into the middle of each other's characters; and to a writer of
// their own, if there is one.
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

// list says that others know of the process: its end is reported once, whichever
// comes first.
func (p *process) list() {
	p.mu.Lock()
	p.listed = true
	over := p.over
	p.mu.Unlock()
	if over {
		p.tellEnd()
	}
}

// tellEnd is called once result is set.
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

// stateRunning is the state of a process that has not ended; else its state is
// the status of its end.
const stateRunning = "running"

// ProcessInfo describes a process. Of one that runs there are no exit code and
// no signal.
type ProcessInfo struct {
	ProcessID    string   `json:"process_id"`
	PID          int      `json:"pid,omitempty" jsonschema:"its number as programs see it, where that is known"`
	Command      []string `json:"command" jsonschema:"the program and its arguments; of a script only how it is run"`
	Cwd          string   `json:"cwd"`
	TTY          bool     `json:"tty,omitempty"`
	Tag          string   `json:"tag,omitempty" jsonschema:"what whoever started it calls it"`
	State        string   `json:"state" jsonschema:"running, or how it ended: exited, signaled, timed_out, oom_killed, pids_limit, disk_limit, cancelled or sandbox_lost"`
	ExitCode     *int     `json:"exit_code,omitempty"`
	Signal       string   `json:"signal,omitempty"`
	StartedAt    string   `json:"started_at"`
	DurationMS   int64    `json:"duration_ms"`
	OutputBytes  int64    `json:"output_bytes" jsonschema:"all that it wrote so far"`
	DroppedBytes int64    `json:"dropped_bytes,omitempty" jsonschema:"the oldest of them, which are no longer kept"`
	Listens      *bool    `json:"listens,omitempty" jsonschema:"in the answer of a start with wait_port: something listens there"`
	Notices      []string `json:"notices,omitempty"`
}

func (p *process) info() ProcessInfo {
	info := p.state()
	if !p.running() {
		info.end(p.result)
	}
	return info
}

// state describes the process as one that runs.
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

// end says how the process ended.
func (i *ProcessInfo) end(res sandbox.Result) {
	i.State, i.ExitCode, i.Signal = string(res.Status), &res.ExitCode, res.Signal
	i.DurationMS, i.Notices = res.Duration.Milliseconds(), res.Notices
}
