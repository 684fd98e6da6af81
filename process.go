package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

// ProcessInfo describes a process of a session: a program that outlives the call that started it,
// whether [Session.StartProcess] or the tool process_start.
type ProcessInfo = shelltool.ProcessInfo

// ProcessOptions are options of [Session.StartProcess]; nil and zero work.
type ProcessOptions struct {
	// KeepStdin keeps the program's input open for [Session.AttachProcess] and process_write. The
	// input of a program with a terminal is always open; otherwise the input is empty.
	KeepStdin bool
	// AtOnce returns as soon as the program runs, and doesn't look for its end.
	AtOnce bool
	// Hold makes the program wait for its first reader from its start, as in [AttachOptions].
	Hold time.Duration
	// Tag is the caller's name for the process, at most 1024 bytes. [ProcessInfo] has it.
	Tag string
	// WaitPort makes StartProcess return only once a program listens on that TCP port of the
	// sandbox, at 127.0.0.1 or ::1, the program has ended, or WaitTime is over;
	// [ProcessInfo.Listens] reports which. 0 doesn't wait. If a program listens there before the
	// start, the error is a conflict, and nothing is started.
	WaitPort uint16
	// WaitTime bounds that; default 30 s, at most 60 s.
	WaitTime time.Duration
}

// StartProcess starts a program that belongs to the session and not to a caller. It runs until it
// ends, until cmd.Timeout, a kill or the session's end, and keeps the holder of a kept session
// alive. If the holder is killed, the next one takes the program over if it starts within a minute;
// output that the killed one had is lost. The program is one of the processes of process_list, of
// which at most 16 run at once.
//
// Its newest output is kept, 8 MiB of both streams together. Older output is dropped and counted,
// even if nobody reads it, so that readers never slow the program down. cmd must have no streams:
// see [Session.AttachProcess] and [Session.ProcessOutput].
//
// ctx bounds only the start. StartProcess waits 100 ms for the program's end, so that the result has
// the exit code of one that can't be executed. With a cmd.Lifetime of [sandbox.LifetimeSelf],
// descendants of the program may outlive it.
func (s *Session) StartProcess(ctx context.Context, cmd sandbox.Cmd, opts *ProcessOptions) (*ProcessInfo, error) {
	start, err := processStartOf(cmd, opts)
	if err != nil {
		return nil, err
	}
	return perform[*ProcessInfo](ctx, s, startProcessOp{start}, hold.Streams{})
}

// StartAttached combines StartProcess and [Session.AttachProcess] in one step, with the record of the
// start. The streams get all of the program's output, which may begin before StartAttached returns.
func (s *Session) StartAttached(ctx context.Context, cmd sandbox.Cmd, opts *ProcessOptions, attach *AttachOptions) (*ProcessInfo, *Attachment, error) {
	start, err := processStartOf(cmd, opts)
	if err != nil {
		return nil, nil, err
	}
	join, streams := attachOf("", attach)
	join.Replay = -1
	p, err := s.start(ctx, startAttachedOp{processStart: start, Join: join}, streams, "")
	if err != nil {
		return nil, nil, err
	}
	a := &Attachment{p: p, left: make(chan struct{})}
	info := &ProcessInfo{}
	if err := hold.IntroductionOf(p, info); err != nil {
		a.Detach()
		return nil, nil, asToolError(err)
	}
	return info, a, nil
}

// processStartOf checks the arguments as far as possible in this process.
func processStartOf(cmd sandbox.Cmd, opts *ProcessOptions) (processStart, error) {
	op, err := programOf(cmd)
	if err == nil && (cmd.Stdin != nil || cmd.Stdout != nil || cmd.Stderr != nil) {
		err = tool.Errorf(tool.Unsupported, "a process of a session can't use streams of its caller; use AttachProcess")
	}
	start := processStart{program: op}
	if opts != nil {
		start.KeepStdin, start.AtOnce, start.Hold, start.Tag = opts.KeepStdin, opts.AtOnce, opts.Hold, opts.Tag
		start.WaitPort, start.WaitTime = opts.WaitPort, opts.WaitTime
	}
	return start, err
}

// Processes returns the running processes and the last 16 that ended, in the order of their starts.
// A kept session without a holder has none. It leaves no record.
func (s *Session) Processes(ctx context.Context) ([]ProcessInfo, error) {
	return perform[[]ProcessInfo](ctx, s, processesOp{}, hold.Streams{})
}

// OutputOptions are options of [Session.ProcessOutput]; nil and zero work.
type OutputOptions struct {
	// Stdout and Stderr get the program's streams, each from one goroutine, one after
	// the other; nil discards.
	Stdout, Stderr io.Writer
	// Tail is the number of the newest lines to begin with; 0 means all that is kept, a negative
	// number none.
	Tail int
	// Follow continues until the process ends.
	Follow bool
}

// ProcessOutput writes the kept output of a process and returns its state, in which DroppedBytes
// counts output that was dropped before it could be written. A slow writer delays nobody else. An
// unknown process is not_found, and if the session ends meanwhile the error is closed. It leaves no
// record.
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

// SignalProcess sends a signal, by its name without SIG, to a process. KILL kills it with its
// descendants, and SignalProcess waits at most 5 s for their end. A process that has ended is not an
// error: the result has its state.
func (s *Session) SignalProcess(ctx context.Context, id, signal string) (*ProcessInfo, error) {
	return perform[*ProcessInfo](ctx, s, signalOp{id, signal}, hold.Streams{})
}

// WriteProcess passes bytes to a process's input and, if end is set, closes it afterwards. Input of
// several callers is mixed in the order of its arrival. It waits while a program has 1 MiB unread.
// An input that was closed, or whose program has ended, is a conflict.
func (s *Session) WriteProcess(ctx context.Context, id string, data []byte, end bool) error {
	_, err := perform[struct{}](ctx, s, inputOp{ID: id, Data: data, End: end}, hold.Streams{})
	return err
}

// ResizeProcess changes the size of a process's terminal, at most 1000 by 1000.
func (s *Session) ResizeProcess(ctx context.Context, id string, size sandbox.WinSize) error {
	_, err := perform[struct{}](ctx, s, resizeOp{id, size}, hold.Streams{})
	return err
}

// AttachOptions are options of [Session.AttachProcess]; nil and zero work.
type AttachOptions struct {
	// Stdin goes to the program if its input is open; nil sends nothing.
	Stdin io.Reader
	// CloseStdin closes the program's input at Stdin's end. Otherwise the input stays open for the
	// next client.
	CloseStdin bool
	// Stdout and Stderr get the program's streams from now on; nil discards.
	Stdout, Stderr io.Writer
	// Replay is the number of earlier lines of output to begin with; a negative number means all that
	// is kept. For a process that has ended, it is at least ten.
	Replay int
	// Hold is how long the program waits, for each piece, before it drops output that this reader has
	// not read yet. A slower reader loses output, and the program doesn't wait for it again until it
	// has caught up. Default: the program doesn't wait.
	Hold time.Duration
}

// AttachProcess connects the caller's streams to a process until the process ends, or until
// [Attachment.Detach]; ctx bounds only the start. The process goes on without its clients, however
// they end. Many clients may be attached at once: each gets all output, their input reaches the
// program in the order of its arrival, and the last size that any of them set is the terminal's. An
// unknown process is not_found.
func (s *Session) AttachProcess(ctx context.Context, id string, opts *AttachOptions) (*Attachment, error) {
	op, streams := attachOf(id, opts)
	p, err := s.start(ctx, op, streams, "")
	if err != nil {
		return nil, err
	}
	return &Attachment{p: p, left: make(chan struct{})}, nil
}

func attachOf(id string, opts *AttachOptions) (attachOp, hold.Streams) {
	var o AttachOptions
	if opts != nil {
		o = *opts
	}
	return attachOp{ID: id, Replay: o.Replay, Hold: o.Hold, CloseStdin: o.CloseStdin, Input: o.Stdin != nil},
		hold.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}
}

// Attachment connects streams to a process. Its methods may be called from many goroutines at once.
type Attachment struct {
	p    sandbox.Process
	once sync.Once
	left chan struct{} // closed by Detach
}

// ErrDetached is the error of [Attachment.Wait] after [Attachment.Detach].
var ErrDetached = errors.New("detached")

// Wait returns the result of the process once all its output was written, or [ErrDetached]. If the
// session ends, the error is closed. ctx ends only the wait. The notices of the result report output
// that was dropped because it was read too slowly.
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

// ends waits until the ends of programs are recorded.
type ends struct{ sync.WaitGroup }

// endsWait bounds that wait at a session's end: a program may still exist if its sandbox couldn't
// be removed.
var endsWait = patience.For(5 * time.Second)

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

// recorded returns a program whose end is in the log before anybody learns of it.
func (l *local) recorded(ctx context.Context, p sandbox.Process, argv []string) sandbox.Process {
	ctx, began := context.WithoutCancel(ctx), time.Now()
	return sandbox.Follow(ctx, p, l.ends.Go, func(res sandbox.Result, err error) (sandbox.Result, error) {
		res.Notices = append(res.Notices, l.lacking(ctx, argv, res)...)
		logged := res
		if err != nil {
			logged = sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}
		}
		if logged.Duration == 0 {
			logged.Duration = time.Since(began)
		}
		l.recordEnd(ctx, "", argv, logged)
		return res, err
	})
}

// processEnded records the end of a process; begun has the values of the call that started it.
func (l *local) processEnded(begun context.Context, info ProcessInfo, res sandbox.Result) {
	if l.leave.Load() {
		return // it is frozen and belongs to the next holder
	}
	l.ends.Go(func() { l.recordEnd(begun, info.ProcessID, info.Command, res) })
}

// originOf returns the call in a context, for a later holder.
func originOf(ctx context.Context) shelltool.Origin {
	return shelltool.Origin{Call: journal.CallIn(ctx).ID, Caller: journal.CallerOf(ctx)}
}

// begunBy returns the context of an earlier call, which is already in the log.
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

// errNoProcesses is the error if there is no holder: processes end with it.
var errNoProcesses = tool.Errorf(tool.NotFound,
	"process not found: none runs in this session, and ended ones are forgotten ten minutes after the session's last use; `wisbox history` shows how they ended").In("process_id")

// elsewhere adds to the error for an unknown process where to find the ids.
func elsewhere(err error) error {
	if tool.KindOf(err) != tool.NotFound {
		return err
	}
	return tool.Errorf(tool.NotFound, "process not found in this session; `wisbox ps SESSION` lists the processes").In("process_id").Because(err)
}

// processStart describes how to start a program that belongs to the session.
type processStart struct {
	program
	KeepStdin bool          `json:"keep_stdin,omitempty"`
	AtOnce    bool          `json:"at_once,omitempty"`
	Hold      time.Duration `json:"hold,omitempty"`
	Tag       string        `json:"tag,omitempty"`
	WaitPort  uint16        `json:"wait_port,omitempty"`
	WaitTime  time.Duration `json:"wait_time,omitempty"`
}

func (o processStart) event() Event { return journal.ForProgram("process_start", o.Argv, o.Dir) }

// begin starts the program, and calls next in the same step.
func (o processStart) begin(ctx context.Context, l *local, c journal.Call, next func(*ProcessInfo) error) (info *ProcessInfo, out journal.Outcome, err error) {
	cmd, err := o.cmd(hold.Streams{})
	if err != nil {
		return nil, out, err
	}
	if err := l.ready(ctx); err != nil {
		return nil, out, err
	}
	_, out.Effects, err = l.steps.Do(ctx, c, tool.LastingEffect, func(ctx context.Context) (_ *tool.Result, err error) {
		info, err = l.shell.Start(ctx, cmd, shelltool.StartOptions{
			Open: o.KeepStdin, AtOnce: o.AtOnce, Hold: o.Hold, Tag: o.Tag, Port: shelltool.PortWait{Port: o.WaitPort, Time: o.WaitTime},
		})
		if err == nil {
			err = next(info)
		}
		return &tool.Result{}, err
	})
	return cleaned(l, info), out, err
}

// startProcessOp starts a process.
type startProcessOp struct{ processStart }

func (o startProcessOp) do(ctx context.Context, l *local, c journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return o.begin(ctx, l, c, func(*ProcessInfo) error { return nil })
}

// startAttachedOp starts a process and attaches its streams to it.
type startAttachedOp struct {
	processStart
	steered
	Join attachOp `json:"join"` // without an id
}

func (o startAttachedOp) start(ctx context.Context, l *local, c journal.Call, io hold.Streams) (sandbox.Process, journal.Outcome, error) {
	p := &introduced{}
	info, out, err := o.begin(ctx, l, c, func(info *ProcessInfo) (err error) {
		o.Join.ID = info.ProcessID
		p.Process, err = o.Join.join(ctx, l, io)
		return err
	})
	p.info = info
	return p, out, err
}

// introduced is a process that reports its id to the caller with its start.
type introduced struct {
	sandbox.Process
	info *ProcessInfo
}

// Introduction implements [hold.Introducer].
func (p *introduced) Introduction() ([]byte, error) { return json.Marshal(p.info) }

// Unwrap is for [sandbox.As].
func (p *introduced) Unwrap() sandbox.Process { return p.Process }

// cleaned returns an answer with the secrets redacted.
func cleaned[T any](l *local, v T) T {
	if r := l.secrets.Redactor(); r != nil {
		if clean, ok := r.Value(v).(T); ok {
			return clean
		}
	}
	return v
}

// errBehind is the error if the holder of a paused session doesn't know its processes yet.
var errBehind = tool.Errorf(tool.Unavailable,
	"the session is paused, and the process that held it has ended: its processes are known again when it goes on, see `wisbox resume`")

// processesOp lists the processes, and leaves no record.
type processesOp struct{}

func (o processesOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	list, err := l.shell.ListProcesses(ctx, shelltool.ListParams{})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return cleaned(l, list.Processes), journal.Outcome{}, nil
}

// outputOp writes a process's output to its output streams, and leaves no record.
type outputOp struct {
	ID     string `json:"process_id"`
	Tail   int    `json:"tail,omitempty"`
	Follow bool   `json:"follow,omitempty"`
}

func (o outputOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	info, err := l.shell.Output(ctx, o.ID, shelltool.OutputOptions{Stdout: io.Stdout, Stderr: io.Stderr, Tail: o.Tail, Follow: o.Follow})
	if err != nil && ctx.Err() != nil {
		return nil, journal.Outcome{}, shelltool.ErrLeft
	}
	if err != nil {
		return nil, journal.Outcome{}, elsewhere(err)
	}
	return cleaned(l, info), journal.Outcome{Verdict: info.State}, nil
}

// signalOp signals a process. Like process_signal, it waits for no step.
type signalOp struct {
	ID     string `json:"process_id"`
	Signal string `json:"signal"`
}

func (o signalOp) event() Event {
	return Event{Tool: "process_signal", Args: map[string]any{"process_id": clip.Text(o.ID), "signal": clip.Text(o.Signal)}}
}

func (o signalOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if err := l.awake(); err != nil { // must come first: processes of an ended holder aren't known
		return nil, journal.Outcome{}, err
	}
	info, err := l.shell.SignalProcess(ctx, shelltool.SignalParams{ProcessID: o.ID, Signal: o.Signal})
	return cleaned(l, info), journal.Outcome{}, elsewhere(err)
}

// inputOp writes to a process's input, after a step like that of process_write.
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

// resizeOp changes a terminal's size, and leaves no record.
type resizeOp struct {
	ID   string          `json:"process_id"`
	Size sandbox.WinSize `json:"size"`
}

func (o resizeOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	_, err := l.shell.ResizeProcess(ctx, shelltool.ResizeParams{ProcessID: o.ID, Cols: int(o.Size.Cols), Rows: int(o.Size.Rows)})
	return struct{}{}, journal.Outcome{}, elsewhere(err)
}

// attachOp attaches its streams to a process.
type attachOp struct {
	steered
	ID         string        `json:"process_id"`
	Replay     int           `json:"replay,omitempty"`
	CloseStdin bool          `json:"close_stdin,omitempty"`
	Hold       time.Duration `json:"hold,omitempty"`
	Input      bool          `json:"input,omitempty"` // there is an input stream
}

func (o attachOp) event() Event {
	return Event{Tool: "process_attach", Args: map[string]any{"process_id": clip.Text(o.ID), "input": o.Input}}
}

// start makes a step first if input may make the program change the workspace.
func (o attachOp) start(ctx context.Context, l *local, c journal.Call, io hold.Streams) (p sandbox.Process, out journal.Outcome, err error) {
	if err := l.awake(); err != nil {
		return nil, out, err
	}
	effect := tool.NoEffect
	if o.Input {
		effect = tool.LastingEffect
	}
	_, out.Effects, err = l.steps.Do(ctx, c, effect, func(ctx context.Context) (*tool.Result, error) {
		p, err = o.join(ctx, l, io)
		return &tool.Result{}, err
	})
	return p, out, elsewhere(err)
}

func (o attachOp) join(ctx context.Context, l *local, io hold.Streams) (sandbox.Process, error) {
	return l.shell.Attach(ctx, o.ID, shelltool.AttachOptions{
		Stdin: io.Stdin, CloseStdin: o.CloseStdin, Stdout: io.Stdout, Stderr: io.Stderr, Replay: o.Replay, Hold: o.Hold,
	})
}

// OutcomeRunning is the Outcome of the Events that [Session.Running] returns.
const OutcomeRunning = journal.OutcomeRunning

// Running returns the calls of the session that haven't ended, in the order of their starts: events
// whose Outcome is [OutcomeRunning], and whose Duration is the time since their start. Programs
// that outlive their call are in [Session.Processes]. It leaves no record and starts nothing.
func (s *Session) Running(ctx context.Context) ([]Event, error) {
	return perform[[]Event](ctx, s, runningOp{}, hold.Streams{})
}

// runningOp lists the calls that run, and leaves no record.
type runningOp struct{}

func (o runningOp) do(_ context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return l.live.List(), journal.Outcome{}, nil
}
