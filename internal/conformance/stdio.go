package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Stdio is a target that runs an MCP server on pipes and talks to it line by line, without a
// library, so that it checks the bytes on the wire.
type Stdio struct {
	Command []string // of the server; a case's flags follow
	Env     []string // of the server; nil for this process's environment
	// Overlay returns the host directory of the newest session, "" if there is none yet. It may be
	// nil.
	Overlay func() string
	// EndsWithin is the time that the server has to end after its input ends; zero means 20 s.
	EndsWithin time.Duration
}

const maxLine = 64 << 20 // bytes of one line of a server's output

// Open implements [Target].
func (s *Stdio) Open(ctx context.Context, opts OpenOptions) (Session, error) {
	p, err := s.start(opts)
	if err != nil {
		return nil, err
	}
	err = p.handshake(ctx)
	if err == nil {
		return p, nil
	}
	if killed := p.killAfter(2 * time.Second); !killed && p.cmd.ProcessState.ExitCode() > 0 {
		return nil, &Refused{Words: p.stderr.String()}
	}
	return nil, fmt.Errorf("initialize: %w; stderr: %s", err, p.stderr)
}

func (s *Stdio) start(opts OpenOptions) (*process, error) {
	argv := append(append([]string{}, s.Command...), opts.Flags...)
	p := &process{target: s, waiting: map[string]chan []byte{}, heard: map[string]func(string){}, exited: make(chan struct{}), stderr: &tail{}}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr = s.Env, opts.Dir, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 5 * time.Second
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.cmd.Stdout = stdin, theirs
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close(), theirs.Close())
	}
	go p.read(out)
	go func() {
		theirs.Close()
		p.waited = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// process is one running server.
type process struct {
	target *Stdio
	cmd    *exec.Cmd
	stderr *tail
	exited chan struct{} // closed when the server has ended
	waited error

	writing sync.Mutex // one line at a time
	stdin   io.WriteCloser

	mu      sync.Mutex
	next    int
	waiting map[string]chan []byte
	tokens  int
	heard   map[string]func(string) // of running calls, by token
	broken  []string
	ended   bool // no more output follows
}

// killAfter waits for the server to end, and kills it after a time.
func (p *process) killAfter(wait time.Duration) (killed bool) {
	select {
	case <-p.exited:
		return false
	case <-time.After(wait):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
	return true
}

func (p *process) handshake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	line, err := p.request(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "conformance", "version": "1"},
	})
	if err != nil {
		return err
	}
	if get(line, "result") == nil {
		return fmt.Errorf("it answered %.200s", line)
	}
	return p.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// Call implements [Session].
func (p *process) Call(ctx context.Context, tool string, args json.RawMessage, progress func(string)) (Reply, error) {
	params := map[string]any{"name": tool, "arguments": args}
	if progress != nil {
		token, leave := p.listen(progress)
		defer leave()
		params["_meta"] = map[string]any{"progressToken": token}
	}
	line, err := p.request(ctx, "tools/call", params)
	if err != nil {
		return Reply{}, err
	}
	return Reply{Answer: ParseReply(line), Raw: line}, nil
}

// listen returns a new token; progress gets its notifications until leave.
func (p *process) listen(progress func(string)) (token string, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens++
	token = "p" + strconv.Itoa(p.tokens)
	p.heard[token] = progress
	return token, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.heard, token)
	}
}

func (p *process) tell(line value) {
	token, _ := textOf(get(line, "params.progressToken"))
	message, _ := textOf(get(line, "params.message"))
	p.mu.Lock()
	progress := p.heard[token]
	p.mu.Unlock()
	if progress == nil {
		p.breaks("progress of a call that is over or didn't ask for it: %.200s", line)
		return
	}
	progress(message)
}

func (p *process) request(ctx context.Context, method string, params any) ([]byte, error) {
	id, answer := p.expect()
	if err := p.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}); err != nil {
		return nil, fmt.Errorf("write a request: %w", err)
	}
	select {
	case line, ok := <-answer:
		if !ok {
			return nil, errors.New("the server's output ended before the answer")
		}
		return line, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

func (p *process) expect() (int, chan []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	answer := make(chan []byte, 1)
	if p.ended {
		close(answer)
	} else {
		p.waiting[strconv.Itoa(p.next)] = answer
	}
	return p.next, answer
}

func (p *process) send(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err = p.stdin.Write(append(line, '\n'))
	return err
}

// read reads the lines of the output and checks them against the protocol.
func (p *process) read(out *os.File) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		p.take(append(value(nil), lines.Bytes()...))
	}
	if err := lines.Err(); err != nil {
		p.breaks("the output can't be read: %v", err)
	}
	p.finish()
	_, _ = io.Copy(io.Discard, out)
}

func (p *process) take(line value) {
	method, id := get(line, "method"), get(line, "id")
	switch {
	case !json.Valid(line) || string(get(line, "jsonrpc")) != `"2.0"`:
		p.breaks("a line of the output is not a JSON-RPC message: %.200q", line)
	case method != nil && id != nil:
		p.breaks("the server asks %s, which nobody offered", method)
	case method == nil:
		p.answered(string(id), line)
	case string(method) == `"notifications/progress"`:
		p.tell(line)
	}
}

func (p *process) answered(id string, line []byte) {
	p.mu.Lock()
	answer := p.waiting[id]
	delete(p.waiting, id)
	p.mu.Unlock()
	if answer == nil {
		p.breaks("an answer that no request waits for: %.200s", line)
		return
	}
	answer <- line
}

func (p *process) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for id, answer := range p.waiting {
		p.broken = append(p.broken, "no answer to request "+id)
		close(answer)
	}
	clear(p.waiting)
}

func (p *process) breaks(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}

var crash = regexp.MustCompile(`(?m)^(panic: |fatal error: |goroutine \d+ \[|WARNING: DATA RACE)`)

// Broken implements [Session].
func (p *process) Broken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	broken := p.broken
	p.broken = nil
	text := p.stderr.String()
	if at := crash.FindStringIndex(text); at != nil {
		broken = append(broken, "a crash on stderr: "+clip(text[at[0]:], 2000))
	}
	return broken
}

// Overlay implements [Session].
func (p *process) Overlay() string {
	if p.target.Overlay == nil {
		return ""
	}
	return p.target.Overlay()
}

// Close ends the server's input and waits for its end.
func (p *process) Close(context.Context) error {
	within := p.target.EndsWithin
	if within == 0 {
		within = 20 * time.Second
	}
	err := p.stdin.Close()
	if p.killAfter(within) {
		return fmt.Errorf("the server was still there %v after the end of its input; stderr: %s", within, p.stderr)
	}
	if p.waited != nil {
		return fmt.Errorf("the server ended badly: %w; stderr: %s", p.waited, p.stderr)
	}
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}

// Peak implements [Session].
func (p *process) Peak(reset bool) int64 {
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	if reset {
		_ = os.WriteFile(dir+"clear_refs", []byte("5"), 0) // otherwise the growth is measured from an older peak
	}
	status, _ := os.ReadFile(dir + "status")
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return -1
}

// tail keeps the last part of the bytes written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailBytes = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
