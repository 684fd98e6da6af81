package sshd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Bounds of the variables that a client sets for a program.
const (
	maxEnv     = 128       // variables
	maxEnvSize = 128 << 10 // bytes of them
)

// exitEngine is the exit code for a failure of wisbox rather than the program, as in wisbox exec.
const exitEngine = 125

// program is the content of one session channel: one program, or SFTP.
type program struct {
	s  *server
	ch ssh.Channel

	begun   bool // the channel's content was requested
	env     []string
	envSize int
	tty     bool

	gone atomic.Int64 // when the client's reader was reported gone, in ns of the monotonic clock since began; 0: it wasn't

	mu      sync.Mutex
	size    sandbox.WinSize
	process sandbox.Process // set once it runs
	early   []string        // signals that came before
}

const maxEarlySignals = 16 // signals

// serveSession serves a channel until the client closes it. Its running programs then end.
func (s *server) serveSession(ctx context.Context, asked ssh.NewChannel) {
	ch, requests, err := asked.Accept()
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer ch.Close()
	defer cancel()
	p := &program{s: s, ch: ch}
	for r := range requests {
		run, ok := p.handle(r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if run != nil {
			running.Go(func() { run(ctx) })
		}
	}
}

// handle reports whether a request is granted, and returns what to run.
func (p *program) handle(r *ssh.Request) (run func(context.Context), ok bool) {
	switch r.Type {
	case "env":
		return nil, !p.begun && p.addEnv(r.Payload)
	case "pty-req":
		return nil, !p.begun && p.addTerminal(r.Payload)
	case "window-change":
		return nil, p.resize(r.Payload)
	case "signal":
		return nil, p.signal(r.Payload)
	case "eow@openssh.com": // "end of write": it has no answer
		p.unread()
	case "shell", "exec", "subsystem":
		if p.begun {
			return nil, false
		}
		run, ok = p.begin(r)
		p.begun = ok
		return run, ok
	}
	return nil, false // agents, displays, and unknown requests
}

// begin returns the channel's content.
func (p *program) begin(r *ssh.Request) (run func(context.Context), ok bool) {
	if r.Type == "shell" {
		return func(ctx context.Context) { p.run(ctx, "-l") }, true
	}
	var text struct{ Value string }
	if ssh.Unmarshal(r.Payload, &text) != nil {
		return nil, false
	}
	if r.Type == "exec" {
		if !isText(text.Value) {
			return func(context.Context) {
				p.fail(tool.Errorf(tool.Invalid, "the command is not UTF-8, or has a NUL character; write such bytes with printf, or copy a script"))
			}, true
		}
		return func(ctx context.Context) { p.run(ctx, "-c", text.Value) }, true
	}
	if text.Value != "sftp" || !p.s.freeSFTP.TryAcquire(1) {
		return nil, false
	}
	return func(ctx context.Context) {
		defer p.s.freeSFTP.Release(1)
		serveSFTP(ctx, p.ch, &p.s.opts)
		p.exit(0)
	}, true
}

// isText reports whether a text can be passed to a program unchanged.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

var variableName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

func (p *program) addEnv(payload []byte) bool {
	var v struct{ Name, Value string }
	if ssh.Unmarshal(payload, &v) != nil || !variableName().MatchString(v.Name) || !isText(v.Value) {
		return false
	}
	pair := v.Name + "=" + v.Value
	if len(p.env) == maxEnv || p.envSize+len(pair) > maxEnvSize {
		return false
	}
	p.env, p.envSize = append(p.env, pair), p.envSize+len(pair)
	return true
}

// windowSize is SSH's form of a terminal's size.
type windowSize struct{ Cols, Rows, Width, Height uint32 }

// fit returns a valid size of a terminal; 0 means the usual size.
func (w windowSize) fit() sandbox.WinSize {
	fit := func(n, usual uint32) uint16 {
		if n == 0 {
			n = usual
		}
		return uint16(min(n, 1000))
	}
	return sandbox.WinSize{Cols: fit(w.Cols, 80), Rows: fit(w.Rows, 24)}
}

func (p *program) addTerminal(payload []byte) bool {
	var t struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	if p.tty || ssh.Unmarshal(payload, &t) != nil {
		return false
	}
	p.tty, p.size = true, windowSize{t.Cols, t.Rows, t.Width, t.Height}.fit()
	if len(t.Term) < 64 && terminalName().MatchString(t.Term) {
		p.env = append([]string{"TERM=" + t.Term}, p.env...)
	}
	return true
}

var terminalName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[+-9A-Za-z_]+$`) })

func (p *program) resize(payload []byte) bool {
	var w windowSize
	if !p.tty || ssh.Unmarshal(payload, &w) != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = w.fit()
	return p.process == nil || p.process.Resize(p.size) == nil
}

func (p *program) signal(payload []byte) bool {
	var s struct{ Name string }
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ssh.Unmarshal(payload, &s) != nil:
		return false
	case p.process != nil:
		return p.process.Signal(s.Name) == nil
	case !p.begun || len(p.early) == maxEarlySignals:
		return false
	}
	p.early = append(p.early, s.Name) // its output may come before Start has returned
	return true
}

// unreadGrace is the time for a program to end by SIGPIPE. One that goes on writing after that, such as one that
// ignores the signal, is killed; one that writes nothing may go on.
const unreadGrace = time.Second

// began is the origin of monotonic times.
var began = time.Now()

// unread does what a broken pipe does to a program that writes: nobody reads its output any more.
func (p *program) unread() {
	if !p.gone.CompareAndSwap(0, int64(time.Since(began))) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		_ = p.process.Signal("PIPE")
	} else if p.begun && len(p.early) < maxEarlySignals {
		p.early = append(p.early, "PIPE")
	}
}

// output is the program's standard output.
type output struct{ p *program }

// Write drops what nobody reads.
func (o output) Write(data []byte) (int, error) {
	gone := o.p.gone.Load()
	if gone == 0 {
		return o.p.ch.Write(data)
	}
	if time.Since(began)-time.Duration(gone) > unreadGrace {
		o.p.mu.Lock()
		defer o.p.mu.Unlock()
		if o.p.process != nil {
			_ = o.p.process.Kill()
		}
	}
	return len(data), nil
}

// account returns the variables that every SSH server sets. The client's own replace them.
func (s *server) account(ctx context.Context, shell string) []string {
	if !path.IsAbs(shell) {
		shell = path.Join("/bin", shell)
	}
	s.named.Do(func() { s.user = userName(ctx, s.opts.Session.Inside()) })
	return []string{"USER=" + s.user, "LOGNAME=" + s.user, "SHELL=" + shell}
}

// userName returns the name that a sandbox's list of users has for its programs.
func userName(ctx context.Context, files sandbox.FileSystem) string {
	const most = 1 << 20
	list, err := files.Open(ctx, "/etc/passwd", sandbox.OpenOptions{Length: most})
	if err != nil {
		return nameOf(fmt.Sprint(sandbox.UserID))
	}
	defer list.Close()
	for lines := bufio.NewScanner(io.LimitReader(list, most)); lines.Scan(); {
		if fields := strings.Split(lines.Text(), ":"); len(fields) > 2 && fields[2] == fmt.Sprint(sandbox.UserID) && plainName().MatchString(fields[0]) {
			return fields[0]
		}
	}
	return nameOf(fmt.Sprint(sandbox.UserID))
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w.-]{1,64}$`) })

// run runs the shell until it ends and reports the result to the client.
func (p *program) run(ctx context.Context, args ...string) {
	shell := p.s.opts.Shell(ctx)
	cmd := sandbox.Cmd{Argv: append([]string{shell}, args...), Env: append(p.s.account(ctx, shell), p.env...), Stdin: p.ch, Stdout: output{p}, Stderr: p.ch.Stderr()}
	p.mu.Lock()
	if p.tty {
		size := p.size
		cmd.TTY = &size
	}
	p.mu.Unlock()
	started, err := p.s.opts.Session.Start(ctx, cmd)
	if err != nil {
		p.fail(err)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = started.Kill() })()
	p.runs(started)
	res, err := started.Wait(context.WithoutCancel(ctx))
	switch {
	case err != nil:
		p.fail(err)
	case res.Status == sandbox.StatusSandboxLost:
		p.say(p.s.opts.Explain(res)...)
		p.exit(exitEngine)
	default:
		p.say(p.s.opts.Explain(res)...)
		p.end(res)
	}
}

// runs passes the terminal's size and signals to the started program.
func (p *program) runs(started sandbox.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = started
	if p.tty {
		_ = started.Resize(p.size) // it may have changed since
	}
	for _, name := range p.early {
		_ = started.Signal(name)
	}
}

func (p *program) fail(err error) {
	said := tool.AsError(err)
	p.say(fmt.Sprintf("%s: %s", said.Kind, said.Message))
	p.exit(exitEngine)
}

// say prints lines for the person at the client.
func (p *program) say(lines ...string) {
	to, end := p.ch.Stderr(), "\n"
	if p.tty {
		to, end = p.ch, "\r\n"
	}
	for _, line := range lines {
		_, _ = io.WriteString(to, "wisbox: "+line+end)
	}
}

// end reports how the program ended, and closes the channel.
func (p *program) end(res sandbox.Result) {
	if res.Status != sandbox.StatusSignaled || res.Signal == "" {
		p.exit(res.ExitCode)
		return
	}
	_, _ = p.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
		Signal     string
		Core       bool
		Text, Lang string
	}{Signal: res.Signal}))
	p.close()
}

func (p *program) exit(code int) {
	_, _ = p.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
	p.close()
}

func (p *program) close() {
	_ = p.ch.CloseWrite()
	_ = p.ch.Close()
}
