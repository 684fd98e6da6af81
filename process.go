package wisbox

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

// ProcessInfo describes a process of a session: a program that outlives the call that
// began it, be that [Session.StartProcess] or the tool process_start.
type ProcessInfo = shelltool.ProcessInfo

// ProcessOptions are those of [Session.StartProcess]; nil and zero work.
type ProcessOptions struct {
	// KeepStdin keeps the program's input open for [Session.AttachProcess] and
	// process_write. One with a terminal always has it open; any other finds the end
	// of its input at once.
	KeepStdin bool
	// AtOnce returns as soon as the program runs, and doesn't look for its end.
	AtOnce bool
	// Hold has the program wait for its first reader as [AttachOptions] say, from its start.
	Hold time.Duration
	// Tag is what the caller calls the process, at most 1024 bytes: [ProcessInfo] has it.
	Tag string
	// WaitPort has StartProcess return only once something listens on that TCP port of
	// the sandbox, at 127.0.0.1 or ::1, the program has ended, or WaitTime is over:
	// [ProcessInfo.Listens] says which. 0 waits for none. Where something listens before
	// the start it is a conflict, and nothing is started.
	WaitPort uint16
	// WaitTime bounds that; default 30 s, at most 60 s.
	WaitTime time.Duration
}

// StartProcess begins a program that belongs to the session and to no caller: it runs
// until it ends, its cmd.Timeout, a kill, or the session's end, and keeps the holder of
// a kept session alive. Where the holder is killed the next one takes it over, if it
// starts within a minute; output that the killed one had is lost. It is one of the processes that process_list shows, of which at
// most 16 run at once. What it writes is kept, the newest 8 MiB of both streams
// together; older output is dropped and counted, whether somebody reads or not, so
// nothing slows it down. cmd has no streams: see [Session.AttachProcess] and
// [Session.ProcessOutput]. ctx bounds only the start. It waits 100 ms for the end, so
// that one which can't be executed has its exit code in what is returned. With a cmd.Lifetime of
// [sandbox.LifetimeSelf] what the program has started lives on when it ends by itself.
func (s *Session) StartProcess(ctx context.Context, cmd sandbox.Cmd, opts *ProcessOptions) (*ProcessInfo, error) {
	op, err := programOf(cmd)
	if err != nil {
		return nil, err
	}
	if cmd.Stdin != nil || cmd.Stdout != nil || cmd.Stderr != nil {
		return nil, tool.Errorf(tool.Unsupported, "a process of a session has no streams of its caller's; use AttachProcess")
	}
	start := startProcessOp{program: op}
	if opts != nil {
		start.KeepStdin, start.AtOnce, start.Hold, start.Tag = opts.KeepStdin, opts.AtOnce, opts.Hold, opts.Tag
		start.WaitPort, start.WaitTime = opts.WaitPort, opts.WaitTime
	}
	return perform[*ProcessInfo](ctx, s, start, hold.Streams{})
}

// Processes returns the processes that run and the last 16 that ended, in the order
// of their starts. A kept session that nobody holds has none. It leaves no record.
func (s *Session) Processes(ctx context.Context) ([]ProcessInfo, error) {
	return perform[[]ProcessInfo](ctx, s, processesOp{}, hold.Streams{})
}

// OutputOptions are what [Session.ProcessOutput] writes and where to; nil and zero work.
type OutputOptions struct {
	// Stdout and Stderr get the program's streams, each from one goroutine, one after
	// the other; nil discards.
	Stdout, Stderr io.Writer
	// Tail is the number of the newest lines to begin with; 0 is all that is kept,
	// negative none.
	Tail int
	// Follow goes on until the process ends.
	Follow bool
}

// ProcessOutput writes what is kept of a process's output and returns its state, where
// DroppedBytes counts what was dropped before it could be written. A slow writer holds
// nobody else up. An unknown process is not_found; one whose session ends meanwhile is
// closed. It leaves no record.
func (s *Session) ProcessOutput(ctx context.Context, id string, opts *OutputOptions) (*ProcessInfo, error) {
	var o OutputOptions
	if opts != nil {
		o = *opts
	}
	info, err := perform[*ProcessInfo](ctx, s, outputOp{id, o.Tail, o.Follow}, hold.Streams{Stdout: o.Stdout, Stderr: o.Stderr})
	if err != nil && ctx.Err() != nil {
		return nil, asToolError(ctx.Err())
	}
	return info, err
}

// SignalProcess sends a process a signal, by its name without SIG. KILL ends it and all
// that it started, and is waited for, at most 5 s. One that has ended is no error: its
// state says so.
func (s *Session) SignalProcess(ctx context.Context, id, signal string) (*ProcessInfo, error) {
	return perform[*ProcessInfo](ctx, s, signalOp{id, signal}, hold.Streams{})
}

// WriteProcess hands bytes to a process's input, and closes it afterwards where end says
// so; what is sent by many is mixed as it comes. It waits while a program that doesn't
// read has 1 MiB to read. An input that was closed, or whose program has ended, is a conflict.
func (s *Session) WriteProcess(ctx context.Context, id string, data []byte, end bool) error {
	_, err := perform[struct{}](ctx, s, inputOp{ID: id, Data: data, End: end}, hold.Streams{})
	return err
}

// ResizeProcess changes the size of a process's terminal, at most 1000 by 1000.
func (s *Session) ResizeProcess(ctx context.Context, id string, size sandbox.WinSize) error {
	_, err := perform[struct{}](ctx, s, resizeOp{id, size}, hold.Streams{})
	return err
}

// AttachOptions are what [Session.AttachProcess] joins with a process; nil and zero work.
type AttachOptions struct {
	// Stdin goes to the program, where its input is open; nil sends nothing.
	Stdin io.Reader
	// CloseStdin closes the program's input at Stdin's end. Else it stays open, for
	// the next who attaches.
	CloseStdin bool
	// Stdout and Stderr get the program's streams from now on; nil discards.
	Stdout, Stderr io.Writer
	// Replay is the number of lines of output from before to begin with; negative is
	// all that is kept. Of a process that has ended there are at least the last ten.
	Replay int
	// Hold has the program wait for this reader where output would be dropped that it
	// has not taken yet: for each piece that long at most. A reader that is slower loses
	// output, and holds nobody up before it has caught up. Default: nobody is waited for.
	Hold time.Duration
}

// AttachProcess joins the caller's streams with a process, until the process ends or
// [Attachment.Detach]; ctx bounds only the start. The process goes on without those who
// are attached, however they end. Many may be attached at once: each gets all output,
// what they send reaches the program in the order in which it comes, and the size of
// its terminal is the last one that any of them gave. An unknown process is not_found.
func (s *Session) AttachProcess(ctx context.Context, id string, opts *AttachOptions) (*Attachment, error) {
	var o AttachOptions
	if opts != nil {
		o = *opts
	}
	op := attachOp{ID: id, Replay: o.Replay, Hold: o.Hold, CloseStdin: o.CloseStdin, Input: o.Stdin != nil}
	p, err := s.start(ctx, op, hold.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}, "")
	if err != nil {
		return nil, err
	}
	return &Attachment{p: p, left: make(chan struct{})}, nil
}

// Attachment is streams that are joined with a process. Its methods may be called from
// many goroutines at once.
type Attachment struct {
	p    sandbox.Process
	once sync.Once
	left chan struct{} // closed by Detach
}

// ErrDetached is what [Attachment.Wait] returns after [Attachment.Detach].
var ErrDetached = errors.New("detached")

// Wait returns how the process ended, once all its output was written, or [ErrDetached].
// The session's end is an error of kind closed. ctx ends only the wait. Output that was
// dropped, because it was read too slowly, is a notice of the result.
func (a *Attachment) Wait(ctx context.Context) (sandbox.Result, error) {
	res, err := a.p.Wait(ctx)
	if err == nil {
		return res, nil
	}
	select {
	case <-a.left:
		return res, ErrDetached
	default:
		return res, asToolError(err)
	}
}

// Detach ends the attachment; the process goes on. A second Detach does nothing.
func (a *Attachment) Detach() {
	a.once.Do(func() {
		close(a.left)
		_ = a.p.Kill()
	})
}

// Resize changes the size of the process's terminal; without one it does nothing or is
// unsupported.
func (a *Attachment) Resize(size sandbox.WinSize) error { return asToolError(a.p.Resize(size)) }

// Signal sends the process a signal, by its name without SIG.
func (a *Attachment) Signal(name string) error { return asToolError(a.p.Signal(name)) }

// ends waits for the ends of programs to be recorded.
type ends struct{ sync.WaitGroup }

// endsWait is how long a session's end waits for that: a program may be there still
// where its sandbox could not be removed.
const endsWait = 5 * time.Second

func (e *ends) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endsWait)
	defer cancel()
	done := make(chan struct{})
	go func() {
		e.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// recorded is a program whose end is in the log before anybody learns of it.
type recorded struct {
	sandbox.Process
	done chan struct{} // closed when res and err are set
	res  sandbox.Result
	err  error
}

func (l *local) recorded(ctx context.Context, p sandbox.Process, argv []string) sandbox.Process {
	ctx, began := context.WithoutCancel(ctx), time.Now()
	out := &recorded{Process: p, done: make(chan struct{})}
	l.ends.Go(func() {
		defer close(out.done)
		out.res, out.err = p.Wait(ctx)
		res := out.res
		if out.err != nil {
			res = sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}
		}
		if res.Duration == 0 {
			res.Duration = time.Since(began)
		}
		l.recordEnd(ctx, "", argv, res)
	})
	return out
}

// Unwrap is for [sandbox.As].
func (r *recorded) Unwrap() sandbox.Process { return r.Process }

// Wait implements sandbox.Process.
func (r *recorded) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-r.done:
		return r.res, r.err
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

// processEnded records the end of a process; begun has the values of the call that
// started it.
func (l *local) processEnded(begun context.Context, info ProcessInfo, res sandbox.Result) {
	if l.leave.Load() {
		return // it stands still, and is the next holder's
	}
	l.ends.Go(func() { l.recordEnd(begun, info.ProcessID, info.Command, res) })
}

// originOf names the call of a context, for a holder after this one.
func originOf(ctx context.Context) shelltool.Origin {
	return shelltool.Origin{Call: journal.CallIn(ctx).ID, Caller: journal.CallerOf(ctx)}
}

// begunBy is the context of a call of before, which is in the log already.
func begunBy(from shelltool.Origin) context.Context {
	return journal.WithCall(tool.WithCaller(context.Background(), from.Caller), journal.Call{ID: clip.Text(from.Call)})
}

// recordEnd records an end after its beginning.
func (l *local) recordEnd(begun context.Context, id string, argv []string, res sandbox.Result) {
	call := journal.CallIn(begun)
	if call.Recorded != nil {
		<-call.Recorded
	}
	e := journal.ForEnd(call, id, argv)
	e.Time, e.Session, e.Caller = time.Now().UTC(), l.dir.ID(), journal.CallerOf(begun)
	e.Args["exit_code"] = res.ExitCode
	e.Finish(journal.Outcome{
		Failed: res.Status != sandbox.StatusExited, Verdict: string(res.Status),
		Size: int(res.Stdout.Bytes + res.Stderr.Bytes), Effects: Effects{Unknown: true},
	}, nil, res.Duration)
	_, _ = l.record(e, nil, false)
}

// The operations on the processes of a session: there is one registry of them, the
// Shell's, whoever began them.

// errNoProcesses is where no holder is: processes end with it.
var errNoProcesses = tool.Errorf(tool.NotFound,
	"there is no such process: none runs in this session, and ended ones are forgotten ten minutes after the session's last use; `wisbox log` shows how they ended").In("process_id")

// elsewhere says where the ids are, of a process that is not known.
func elsewhere(err error) error {
	if tool.KindOf(err) != tool.NotFound {
		return err
	}
	return tool.Errorf(tool.NotFound, "there is no such process in this session; `wisbox ps SESSION` and process_list name those there are").In("process_id").Because(err)
}

// lookAtProcesses asks the holder where there is one, or was one that was killed.
func lookAtProcesses(ctx context.Context, h *held, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	answer, out, err := ask(ctx, h.watcher(), c, op, io)
	if errors.Is(err, hold.ErrNoHolder) {
		err = errNoProcesses
	}
	return answer, out, err
}

// startProcessOp starts a program that belongs to the session.
type startProcessOp struct {
	program
	KeepStdin bool          `json:"keep_stdin,omitempty"`
	AtOnce    bool          `json:"at_once,omitempty"`
	Hold      time.Duration `json:"hold,omitempty"`
	Tag       string        `json:"tag,omitempty"`
	WaitPort  uint16        `json:"wait_port,omitempty"`
	WaitTime  time.Duration `json:"wait_time,omitempty"`
}

func (o startProcessOp) event() Event { return journal.ForProgram("process_start", o.Argv, o.Dir) }

func (o startProcessOp) do(ctx context.Context, l *local, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	cmd, err := o.cmd(io)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	if err := l.ready(ctx); err != nil {
		return nil, journal.Outcome{}, err
	}
	var info *ProcessInfo
	_, effects, err := l.steps.Do(ctx, c, tool.LastingEffect, func(ctx context.Context) (_ *tool.Result, err error) {
		info, err = l.shell.Start(ctx, cmd, shelltool.StartOptions{
			Open: o.KeepStdin, AtOnce: o.AtOnce, Hold: o.Hold, Tag: o.Tag, Port: shelltool.PortWait{Port: o.WaitPort, Time: o.WaitTime},
		})
		return &tool.Result{}, err
	})
	return cleaned(l, info), journal.Outcome{Effects: effects}, err
}

// cleaned is an answer without the secrets.
func cleaned[T any](l *local, v T) T {
	if r := l.secrets.Redactor(); r != nil {
		if clean, ok := r.Value(v).(T); ok {
			return clean
		}
	}
	return v
}

// errBehind is where the processes of a paused session are not known to its holder.
var errBehind = tool.Errorf(tool.Unavailable,
	"the session is paused, and the process that held it has ended: its processes are known again when it goes on, see `wisbox session resume`")

// processesOp looks, and leaves no record.
type processesOp struct{}

func (o processesOp) event() Event { return Event{} }

func (o processesOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	list, err := l.shell.ListProcesses(ctx, shelltool.ListParams{})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return cleaned(l, list.Processes), journal.Outcome{}, nil
}

// byHolder starts no holder: where there is none, no process runs.
func (o processesOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	answer, out, err := lookAtProcesses(ctx, h, c, o, io)
	if errors.Is(err, errNoProcesses) {
		return []ProcessInfo{}, out, nil
	}
	return answer, out, err
}

// outputOp writes a process's output to its output streams, and leaves no record.
type outputOp struct {
	ID     string `json:"process_id"`
	Tail   int    `json:"tail,omitempty"`
	Follow bool   `json:"follow,omitempty"`
}

func (o outputOp) event() Event { return Event{} }

func (o outputOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	info, err := l.shell.Output(ctx, o.ID, shelltool.OutputOptions{Stdout: io.Stdout, Stderr: io.Stderr, Tail: o.Tail, Follow: o.Follow})
	if err != nil && ctx.Err() != nil {
		return nil, journal.Outcome{}, shelltool.ErrLeft
	}
	return cleaned(l, info), journal.Outcome{}, elsewhere(err)
}

func (o outputOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	return lookAtProcesses(ctx, h, c, o, io)
}

// signalOp signals a process. It waits for no step, as process_signal.
type signalOp struct {
	ID     string `json:"process_id"`
	Signal string `json:"signal"`
}

func (o signalOp) event() Event {
	return Event{Tool: "process_signal", Args: map[string]any{"process_id": clip.Text(o.ID), "signal": clip.Text(o.Signal)}}
}

func (o signalOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if err := l.awake(); err != nil { // first: after a holder's end its processes aren't known
		return nil, journal.Outcome{}, err
	}
	info, err := l.shell.SignalProcess(ctx, shelltool.SignalParams{ProcessID: o.ID, Signal: o.Signal})
	return cleaned(l, info), journal.Outcome{}, elsewhere(err)
}

func (o signalOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	return lookAtProcesses(ctx, h, c, o, io)
}

// inputOp writes to a process's input, with a step before it, as process_write has.
type inputOp struct {
	ID   string `json:"process_id"`
	Data []byte `json:"data,omitempty"`
	End  bool   `json:"end,omitempty"`
}

func (o inputOp) event() Event {
	return Event{Tool: "process_write", Args: map[string]any{"process_id": clip.Text(o.ID), "data": len(o.Data), "eof": o.End}}
}

func (o inputOp) do(ctx context.Context, l *local, c journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	_, effects, err := l.steps.Do(ctx, c, tool.LastingEffect, func(ctx context.Context) (*tool.Result, error) {
		return &tool.Result{}, l.shell.Input(ctx, o.ID, o.Data, o.End)
	})
	return struct{}{}, journal.Outcome{Effects: effects}, elsewhere(err)
}

func (o inputOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	return lookAtProcesses(ctx, h, c, o, io)
}

// resizeOp changes a terminal's size, and leaves no record.
type resizeOp struct {
	ID   string          `json:"process_id"`
	Size sandbox.WinSize `json:"size"`
}

func (o resizeOp) event() Event { return Event{} }

func (o resizeOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	_, err := l.shell.ResizeProcess(ctx, shelltool.ResizeParams{ProcessID: o.ID, Cols: int(o.Size.Cols), Rows: int(o.Size.Rows)})
	return struct{}{}, journal.Outcome{}, elsewhere(err)
}

func (o resizeOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	return lookAtProcesses(ctx, h, c, o, io)
}

// attachOp joins its streams with a process.
type attachOp struct {
	steered
	ID         string        `json:"process_id"`
	Replay     int           `json:"replay,omitempty"`
	CloseStdin bool          `json:"close_stdin,omitempty"`
	Hold       time.Duration `json:"hold,omitempty"`
	Input      bool          `json:"input,omitempty"` // there is a stream for the program
}

func (o attachOp) event() Event {
	return Event{Tool: "process_attach", Args: map[string]any{"process_id": clip.Text(o.ID), "input": o.Input}}
}

func (o attachOp) looks() bool { return true }

// start has a step before it where input may have the program change the workspace.
func (o attachOp) start(ctx context.Context, l *local, c journal.Call, io hold.Streams) (p sandbox.Process, out journal.Outcome, err error) {
	if err := l.awake(); err != nil {
		return nil, out, err
	}
	effect := tool.NoEffect
	if o.Input {
		effect = tool.LastingEffect
	}
	_, out.Effects, err = l.steps.Do(ctx, c, effect, func(ctx context.Context) (*tool.Result, error) {
		p, err = l.shell.Attach(ctx, o.ID, shelltool.AttachOptions{
			Stdin: io.Stdin, CloseStdin: o.CloseStdin, Stdout: io.Stdout, Stderr: io.Stderr, Replay: o.Replay, Hold: o.Hold,
		})
		return &tool.Result{}, err
	})
	return p, out, elsewhere(err)
}
