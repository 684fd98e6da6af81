package envd

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const (
	// endedFor is how long clients can connect to a program after its end.
	endedFor = 30 * time.Second
)

// readWait is how long a program waits for its client to read output, once 4 MiB are buffered.
var readWait = patience.For(5 * time.Second)

type config struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

type terminal struct {
	Size struct {
		Cols uint32 `json:"cols"`
		Rows uint32 `json:"rows"`
	} `json:"size"`
}

// size returns the size of the terminal; 0 means the default.
func (t *terminal) size() sandbox.WinSize {
	fit := func(n, usual uint32) uint16 {
		if n == 0 {
			n = usual
		}
		return uint16(min(n, 1000))
	}
	return sandbox.WinSize{Cols: fit(t.Size.Cols, 80), Rows: fit(t.Size.Rows, 24)}
}

type startAsk struct {
	Process config    `json:"process"`
	PTY     *terminal `json:"pty"`
	Tag     string    `json:"tag"`
	Stdin   *bool     `json:"stdin"`
}

// selector names a program.
type selector struct {
	Process struct {
		PID *int    `json:"pid"`
		Tag *string `json:"tag"`
	} `json:"process"`
}

type processEvent struct {
	Event struct {
		Start     *started  `json:"start,omitempty"`
		Data      *data     `json:"data,omitempty"`
		End       *ended    `json:"end,omitempty"`
		Keepalive *struct{} `json:"keepalive,omitempty"`
	} `json:"event"`
}

type started struct {
	PID int `json:"pid"`
}

type data struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	PTY    []byte `json:"pty,omitempty"`
}

type ended struct {
	ExitCode int    `json:"exitCode"`
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
	Error    string `json:"error,omitempty"`
}

var processKeepalive = func() (e processEvent) {
	e.Event.Keepalive = &struct{}{}
	return e
}()

// writer sends one output stream of a program.
type writer struct {
	to   *out
	wrap func([]byte) *data
}

func (w writer) Write(p []byte) (int, error) {
	var e processEvent
	e.Event.Data = w.wrap(p)
	return len(p), w.to.send(e)
}

func sendStart(o *out, pid int) error {
	var e processEvent
	e.Event.Start = &started{pid}
	return o.send(e)
}

// start runs a program, which outlives its client.
func (h *handler) start(ctx context.Context, r *http.Request, ask *startAsk, o *out) error {
	cmd, err := h.command(ask)
	if err != nil {
		return err
	}
	if cmd.Timeout, err = timeoutOf(r); err != nil {
		return err
	}
	opts := &wisbox.ProcessOptions{KeepStdin: ask.Stdin == nil || *ask.Stdin, AtOnce: true, Hold: readWait, Tag: ask.Tag}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	defer begin()
	stdout, stderr := writers(o, cmd.TTY != nil)
	info, a, err := h.opts.Session.StartAttached(ctx, cmd, opts, &wisbox.AttachOptions{Stdout: gated{stdout, begun}, Stderr: gated{stderr, begun}, Hold: readWait})
	if err != nil {
		return err
	}
	defer a.Detach()
	if err := sendStart(o, info.PID); err != nil {
		return err
	}
	begin()
	return await(ctx, a, o)
}

// gated delays writes until the start message was sent to the client.
type gated struct {
	io.Writer
	begun <-chan struct{}
}

func (g gated) Write(p []byte) (int, error) {
	<-g.begun
	return g.Writer.Write(p)
}

// command returns the program of a request.
func (h *handler) command(ask *startAsk) (sandbox.Cmd, error) {
	if ask.Process.Cmd == "" {
		return sandbox.Cmd{}, &wireError{"invalid_argument", "process.cmd is empty; it names a program"}
	}
	dir, err := resolve(cmp.Or(ask.Process.Cwd, h.opts.Dir))
	if err != nil {
		return sandbox.Cmd{}, err
	}
	cmd := sandbox.Cmd{Argv: append([]string{ask.Process.Cmd}, ask.Process.Args...), Dir: dir, Lifetime: sandbox.LifetimeSelf}
	for _, env := range []map[string]string{h.opts.Env, ask.Process.Envs} {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			cmd.Env = append(cmd.Env, name+"="+env[name])
		}
	}
	if ask.PTY != nil {
		size := ask.PTY.size()
		cmd.TTY = &size
	}
	return cmd, nil
}

// writers send a program's streams.
func writers(o *out, tty bool) (stdout, stderr io.Writer) {
	wrap := func(b []byte) *data { return &data{Stdout: b} }
	if tty {
		wrap = func(b []byte) *data { return &data{PTY: b} }
	}
	return writer{o, wrap}, writer{o, func(b []byte) *data { return &data{Stderr: b} }}
}

// follow sends a program's output from now on, and its end.
func (h *handler) follow(ctx context.Context, p *wisbox.ProcessInfo, o *out) error {
	how := &wisbox.AttachOptions{}
	if p.ExitCode == nil {
		how.Stdout, how.Stderr = writers(o, p.TTY)
	}
	a, err := h.opts.Session.AttachProcess(ctx, p.ProcessID, how)
	if err != nil {
		return err
	}
	defer a.Detach()
	return await(ctx, a, o)
}

// await sends a program's end.
func await(ctx context.Context, a *wisbox.Attachment, o *out) error {
	res, err := a.Wait(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil, res.Status == sandbox.StatusSandboxLost: // the session or its sandbox has ended
		return errCut
	case res.Status == sandbox.StatusTimedOut:
		return &wireError{"deadline_exceeded", "the time of Connect-Timeout-Ms is over: the program was killed"}
	}
	var e processEvent
	e.Event.End = endOf(res)
	if hint := Hint(strings.Join(res.Notices, "\n")); hint != "" {
		var said processEvent
		said.Event.Data = &data{Stderr: []byte(hint + "\n")}
		if err := o.send(said); err != nil {
			return err
		}
		e.Event.End.Error += ": " + hint
	}
	return o.send(e)
}

// Hint returns what a client hears of a program or code that failed to reach another host, as its
// notices or its result report it; "" for others.
func Hint(notices string) string {
	if !strings.Contains(notices, sandbox.NoNetwork) {
		return ""
	}
	return "this sandbox has no network: it needs a server with --allow-internet, and a host in network.allowOut or allowInternetAccess"
}

// endOf describes a program's end in the words of Go's os.ProcessState.
func endOf(res sandbox.Result) *ended {
	if res.Status == sandbox.StatusCancelled {
		res.Signal = "KILL"
	}
	if number := unix.SignalNum("SIG" + res.Signal); res.Signal != "" {
		said := "signal: " + number.String()
		return &ended{ExitCode: -1, Status: said, Error: said}
	}
	e := &ended{ExitCode: res.ExitCode, Exited: true, Status: "exit status " + itoa(res.ExitCode)}
	if res.ExitCode != 0 {
		e.Error = e.Status
	}
	return e
}

// connect follows a program from now on.
func (h *handler) connect(ctx context.Context, _ *http.Request, ask *selector, o *out) error {
	p, err := h.find(ctx, ask, true)
	if err != nil {
		return err
	}
	if err := sendStart(o, p.PID); err != nil {
		return err
	}
	return h.follow(ctx, p, o)
}

// find finds the newest program that matches: a running one or, if orEnded is set, one that has
// just ended.
func (h *handler) find(ctx context.Context, s *selector, orEnded bool) (*wisbox.ProcessInfo, error) {
	if (s.Process.PID == nil) == (s.Process.Tag == nil) {
		return nil, &wireError{"invalid_argument", "process must have either a pid or a tag"}
	}
	all, err := h.opts.Session.Processes(ctx)
	if err != nil {
		return nil, err
	}
	var found *wisbox.ProcessInfo
	for i := range all {
		p := &all[i]
		meant := s.Process.PID != nil && p.PID == *s.Process.PID || s.Process.Tag != nil && p.Tag == *s.Process.Tag
		usable := p.ExitCode == nil || orEnded && endedSince(p) < endedFor && (found == nil || found.ExitCode != nil)
		if meant && usable {
			found = p
		}
	}
	if found == nil {
		return nil, &wireError{"not_found", "program not found; it may have ended"}
	}
	return found, nil
}

func endedSince(p *wisbox.ProcessInfo) time.Duration {
	began, _ := time.Parse(time.RFC3339Nano, p.StartedAt)
	return time.Since(began) - time.Duration(p.DurationMS)*time.Millisecond
}

type listed struct {
	PID    int    `json:"pid"`
	Config config `json:"config"`
	Tag    string `json:"tag,omitempty"`
}

type listAnswer struct {
	Processes []listed `json:"processes"`
}

func (h *handler) list(ctx context.Context, _ *struct{}) (listAnswer, error) {
	answer := listAnswer{Processes: []listed{}}
	all, err := h.opts.Session.Processes(ctx)
	if err != nil {
		return answer, err
	}
	for _, p := range all {
		if p.ExitCode != nil {
			continue
		}
		one := listed{PID: p.PID, Config: config{Cwd: p.Cwd}, Tag: p.Tag}
		if len(p.Command) > 0 {
			one.Config.Cmd, one.Config.Args = p.Command[0], p.Command[1:]
		}
		answer.Processes = append(answer.Processes, one)
	}
	return answer, nil
}

type signalAsk struct {
	selector
	Signal json.RawMessage `json:"signal"`
}

func (h *handler) sendSignal(ctx context.Context, ask *signalAsk) (none struct{}, err error) {
	var name string
	switch string(ask.Signal) {
	case `"SIGNAL_SIGKILL"`, itoa(int(syscall.SIGKILL)):
		name = "KILL"
	case `"SIGNAL_SIGTERM"`, itoa(int(syscall.SIGTERM)):
		name = "TERM"
	default:
		return none, &wireError{"invalid_argument", "signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM"}
	}
	p, err := h.find(ctx, &ask.selector, false)
	if err == nil {
		_, err = h.opts.Session.SignalProcess(ctx, p.ProcessID, name)
	}
	return none, err
}

type inputAsk struct {
	selector
	Input struct {
		Stdin []byte `json:"stdin"`
		PTY   []byte `json:"pty"`
	} `json:"input"`
}

func (h *handler) sendInput(ctx context.Context, ask *inputAsk) (none struct{}, err error) {
	p, err := h.find(ctx, &ask.selector, false)
	if err == nil {
		err = h.write(ctx, &ask.selector, p, append(ask.Input.Stdin, ask.Input.PTY...), false)
	}
	return none, err
}

// write writes to a process that was running. If it has ended meanwhile, the error is not_found: clients take no other
// error for an end.
func (h *handler) write(ctx context.Context, s *selector, p *wisbox.ProcessInfo, data []byte, eof bool) error {
	err := h.opts.Session.WriteProcess(ctx, p.ProcessID, data, eof)
	if tool.KindOf(err) == tool.Conflict {
		if _, gone := h.find(ctx, s, false); gone != nil {
			return gone
		}
	}
	return err
}

func (h *handler) closeStdin(ctx context.Context, ask *selector) (none struct{}, err error) {
	p, err := h.find(ctx, ask, false)
	switch {
	case err != nil:
		return none, err
	case p.TTY:
		return none, &wireError{"failed_precondition", "a terminal's input can't be closed; send control-D"}
	}
	return none, h.write(ctx, ask, p, nil, true)
}

type updateAsk struct {
	selector
	PTY *terminal `json:"pty"`
}

func (h *handler) update(ctx context.Context, ask *updateAsk) (none struct{}, err error) {
	p, err := h.find(ctx, &ask.selector, false)
	if err != nil || ask.PTY == nil {
		return none, err
	}
	return none, h.opts.Session.ResizeProcess(ctx, p.ProcessID, ask.PTY.size())
}
