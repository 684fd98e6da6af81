package envd

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const (
	// endedFor is how long a program can be connected to after its end.
	endedFor = 30 * time.Second
	// patience is how long a program waits at most for whoever started it to take a piece
	// of its output, once 4 MiB of it wait.
	patience = 5 * time.Second
)

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

// size is what the terminal gets; 0 is the usual.
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

// writer sends a stream of a program.
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

// start runs a program, which goes on without its client.
func (h *handler) start(ctx context.Context, r *http.Request, ask *startAsk, o *out) error {
	cmd, err := h.command(ask)
	if err != nil {
		return err
	}
	if cmd.Timeout, err = timeoutOf(r); err != nil {
		return err
	}
	opts := &wisbox.ProcessOptions{KeepStdin: ask.Stdin == nil || *ask.Stdin, AtOnce: true, Hold: patience, Tag: ask.Tag}
	info, err := h.opts.Session.StartProcess(ctx, cmd, opts)
	if err != nil {
		return err
	}
	if err := sendStart(o, info.PID); err != nil {
		return err
	}
	return h.follow(ctx, info, &wisbox.AttachOptions{Replay: -1, Hold: patience}, o)
}

// command is the program that was asked for.
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

// follow sends what a program writes, and its end.
func (h *handler) follow(ctx context.Context, p *wisbox.ProcessInfo, how *wisbox.AttachOptions, o *out) error {
	stdout := func(b []byte) *data { return &data{Stdout: b} }
	if p.TTY {
		stdout = func(b []byte) *data { return &data{PTY: b} }
	}
	if how.Replay < 0 || p.ExitCode == nil {
		how.Stdout, how.Stderr = writer{o, stdout}, writer{o, func(b []byte) *data { return &data{Stderr: b} }}
	}
	a, err := h.opts.Session.AttachProcess(ctx, p.ProcessID, how)
	if err != nil {
		return err
	}
	defer a.Detach()
	res, err := a.Wait(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil, res.Status == sandbox.StatusSandboxLost: // the session's end, or its sandbox's
		return errCut
	case res.Status == sandbox.StatusTimedOut:
		return &wireError{"deadline_exceeded", "the time of Connect-Timeout-Ms is over: the program was killed"}
	}
	var e processEvent
	e.Event.End = endOf(res)
	return o.send(e)
}

// endOf says how a program ended, in the words of Go's os.ProcessState.
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
	return h.follow(ctx, p, &wisbox.AttachOptions{}, o)
}

// find finds the newest program that is meant: one that runs or, where that will do, has
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
		return nil, &wireError{"not_found", "there is no such program; it may have ended"}
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

// write writes to a process that was found running. One that has ended meanwhile is unknown:
// clients take that, and nothing else, for an end.
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
