package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/inside"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// operation is one thing that a session can do. It is performed where the session's work is done:
// as a value in this process, or as its name and its JSON in the process that holds the session.
// There is no other way to change a session.
type operation interface {
	do(ctx context.Context, l *local, c journal.Call, io hold.Streams) (answer any, out journal.Outcome, err error)
}

// answerAs returns an operation's answer, from this process or from a holder.
func answerAs[R any](answer any) (out R, err error) {
	if here, ok := answer.(R); ok {
		return here, nil
	}
	a, ok := answer.(*hold.Answer)
	if !ok {
		return out, fmt.Errorf("an operation answered %T", answer)
	}
	if res, ok := any(&out).(**tool.Result); ok {
		*res = &tool.Result{Value: a.Value, Text: a.Text, Failed: a.Failed, Verdict: a.Verdict, Blobs: a.Blobs}
		return out, nil
	}
	return out, json.Unmarshal(a.Value, &out)
}

// wireAnswer returns an answer's form on the wire; the answer may itself have come over a wire.
func wireAnswer(answer any, out journal.Outcome) (*hold.Answer, error) {
	if a, ok := answer.(*hold.Answer); ok {
		return a, nil
	}
	a := &hold.Answer{Outcome: out}
	if res, ok := answer.(*tool.Result); ok {
		a.Text, a.Blobs, answer = res.Text, res.Blobs, res.Value
	}
	var err error
	a.Value, err = json.Marshal(answer)
	return a, err
}

// callOp calls a tool.
type callOp struct {
	Tool string `json:"tool"`
	Own  bool   `json:"own,omitempty"`  // Tool is one of wisbox's own, not of the session's profile
	Args string `json:"args,omitempty"` // JSON, exactly as the caller gave it
}

func (o callOp) event() Event { return journal.ForTool(o.Tool, json.RawMessage(o.Args)) }

func (o callOp) do(ctx context.Context, l *local, c journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	set, effect := l.set, tool.NoEffect
	if o.Own {
		set = l.own
	}
	if t, ok := set.Lookup(o.Tool); ok {
		effect = t.Effect
	}
	return l.call(ctx, c, effect, o.Own, func(ctx context.Context) (*tool.Result, error) {
		return set.Call(ctx, o.Tool, json.RawMessage(o.Args))
	})
}

// call performs a tool's work as one step. own means that the answer uses wisbox's own names.
func (l *local) call(ctx context.Context, c journal.Call, effect tool.Effect, own bool, do func(context.Context) (*tool.Result, error)) (any, journal.Outcome, error) {
	if err := l.dir.Check(ctx); err != nil {
		return nil, journal.Outcome{}, err
	}
	if effect == tool.ProgramEffect || effect == tool.LastingEffect { // before its step
		if err := l.awake(); err != nil {
			return nil, journal.Outcome{}, err
		}
	}
	defer l.door.Begin(c.ID)()
	before := l.door.Mark()
	res, effects, err := l.steps.Do(ctx, c, effect, do)
	if err != nil {
		return nil, journal.Outcome{Effects: effects}, err
	}
	res = l.sayDenied(l.sayLoss(res), before, own)
	if effect == tool.ProgramEffect {
		res = l.sayClosed(ctx, res, own)
	}
	res = l.secrets.CleanResult(res)
	l.keepShown(c.ID, res)
	return res, journal.Outcome{Failed: res.Failed, Verdict: res.Verdict, Size: len(res.Text), Effects: effects}, nil
}

// check refuses arguments that the wire can't represent, as the tool itself would.
func (o callOp) check() error {
	switch {
	case len(o.Args) > tool.MaxArguments:
		return tool.Errorf(tool.TooLarge, "the arguments have %d bytes; the maximum is %d", len(o.Args), tool.MaxArguments)
	case len(o.Args) > 0 && !json.Valid([]byte(o.Args)):
		return tool.Errorf(tool.Invalid, "the arguments must be one JSON object")
	case !utf8.ValidString(o.Args):
		return tool.Errorf(tool.Invalid, "the arguments have bytes that aren't UTF-8; give them in base64, where a tool takes it")
	}
	return nil
}

// program is the part of a sandbox.Cmd that is the same in every process.
type program struct {
	Argv    []string         `json:"argv"`
	Dir     string           `json:"dir,omitempty"`
	Env     []string         `json:"env,omitempty"`
	Timeout time.Duration    `json:"timeout,omitempty"`
	TTY     *sandbox.WinSize `json:"tty,omitempty"`

	Lifetime sandbox.Lifetime `json:"lifetime,omitempty"`
}

func programOf(cmd sandbox.Cmd) (program, error) {
	if cmd.Python != nil || cmd.Control != nil || cmd.Capture != nil {
		return program{}, tool.Errorf(tool.Unsupported, "a program of a session can't have private channels; use Call")
	}
	if cmd.Lifetime != sandbox.LifetimeCall && cmd.Lifetime != sandbox.LifetimeSelf {
		return program{}, tool.Errorf(tool.Unsupported, "a program that should outlive its caller must be started with StartProcess")
	}
	for i, arg := range cmd.Argv {
		if !utf8.ValidString(arg) {
			return program{}, tool.Errorf(tool.Invalid, "argument %d of the command is not UTF-8; pass the bytes by standard input or a file", i).In("argv")
		}
	}
	return program{cmd.Argv, cmd.Dir, cmd.Env, cmd.Timeout, cmd.TTY, cmd.Lifetime}, nil
}

func streamsOf(cmd sandbox.Cmd) hold.Streams {
	return hold.Streams{Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, Signals: cmd.Signals}
}

// cmd returns the program to run. It checks the directory as far as possible: only the sandbox
// knows directories outside of the workspace.
func (p program) cmd(io hold.Streams) (sandbox.Cmd, error) {
	dir, err := path.Clean(p.Dir), error(nil)
	if !path.IsAbs(dir) || strings.HasPrefix(dir+"/", sandbox.WorkspaceDir+"/") {
		dir, err = vfs.Any.Parse(p.Dir)
	}
	return sandbox.Cmd{
		Argv: p.Argv, Dir: dir, Env: p.Env, Timeout: p.Timeout, TTY: p.TTY, Lifetime: p.Lifetime,
		Stdin: io.Stdin, Stdout: io.Stdout, Stderr: io.Stderr, Signals: io.Signals,
	}, err
}

// ready checks, before the step is made, that a program can be started.
func (l *local) ready(ctx context.Context) error {
	if err := l.dir.Check(ctx); err != nil {
		return err
	}
	return l.awake()
}

// runOp runs a program to its end.
type runOp struct{ program }

func (o runOp) event() Event { return journal.ForProgram("run", o.Argv, o.Dir) }

func (o runOp) do(ctx context.Context, l *local, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	var out sandbox.Result
	cmd, err := o.cmd(io)
	if err != nil {
		return out, journal.Outcome{}, err
	}
	if err := l.ready(ctx); err != nil {
		return out, journal.Outcome{}, err
	}
	defer l.door.Begin(c.ID)()
	before := l.door.Mark()
	_, effects, err := l.steps.Do(ctx, c, tool.ProgramEffect, func(ctx context.Context) (*tool.Result, error) {
		runner, err := l.runner(ctx)
		if err == nil {
			out, err = runner.Run(ctx, cmd)
			out.NetworkDenied = l.door.DeniedSince(before)
			out.Notices = append(out.Notices, l.lacking(ctx, o.Argv, out)...)
		}
		return &tool.Result{Failed: out.Status != sandbox.StatusExited}, err
	})
	return out, journal.Outcome{
		Failed: err == nil && out.Status != sandbox.StatusExited, Verdict: string(out.Status),
		Size: int(out.Stdout.Bytes + out.Stderr.Bytes), Effects: effects,
	}, err
}

// left reports how a program ended whose caller didn't wait for the answer.
func (o runOp) left() (any, journal.Outcome) {
	res := sandbox.Result{Status: sandbox.StatusCancelled, ExitCode: sandbox.ExitSignalBase + 9, Signal: "KILL"}
	return res, journal.Outcome{Failed: true, Verdict: string(res.Status), Effects: Effects{Unknown: true}}
}

// lacking explains that the default image lacks a program which a preset has.
func (l *local) lacking(ctx context.Context, argv []string, res sandbox.Result) []string {
	if res.ExitCode != sandbox.ExitNotFound || len(argv) == 0 || l.image(ctx) != images.Default {
		return nil
	}
	if images.IsTagged(argv[0]) {
		return []string{sandbox.NoProgram + argv[0] + "; that may be an image: give it to --image, as in `wisbox run --image " + argv[0] + " -- COMMAND`"}
	}
	preset := images.PresetOf(argv[0])
	if preset == "" {
		return nil
	}
	return []string{sandbox.NoProgram + argv[0] + "; `wisbox image build --with " + preset + "` makes one that has it: give the name that it prints to --image of wisbox create or run"}
}

// recorder is an operation whose event has more than its spec's name.
type recorder interface {
	// event begins the call's record; an event without a tool isn't recorded.
	event() Event
}

// left is an operation with an answer for a caller that leaves before its end.
type left interface {
	left() (any, journal.Outcome)
}

// answerOf returns the answer of another process to an operation.
func answerOf(ctx context.Context, op operation, a *hold.Answer, err error) (any, journal.Outcome, error) {
	if err == nil {
		return a, a.Outcome, nil
	}
	if op, ok := op.(left); ok && ctx.Err() != nil {
		answer, out := op.left()
		return answer, out, nil
	}
	return nil, journal.Outcome{}, err
}

// starter is an operation whose caller steers its result over the open connection; see [executor].
type starter interface {
	operation
	start(ctx context.Context, l *local, c journal.Call, io hold.Streams) (sandbox.Process, journal.Outcome, error)
}

// steered is the common part of starters.
type steered struct{}

func (steered) do(context.Context, *local, journal.Call, hold.Streams) (any, journal.Outcome, error) {
	return nil, journal.Outcome{}, tool.Errorf(tool.Unsupported, "a program that lives on is started, not done")
}

// startOp starts a program that lives at most as long as its caller's connection.
type startOp struct {
	program
	steered
}

func (o startOp) event() Event { return journal.ForProgram("start", o.Argv, o.Dir) }

func (o startOp) start(ctx context.Context, l *local, c journal.Call, io hold.Streams) (p sandbox.Process, out journal.Outcome, err error) {
	cmd, err := o.cmd(io)
	if err != nil {
		return nil, out, err
	}
	if err := l.ready(ctx); err != nil {
		return nil, out, err
	}
	_, out.Effects, err = l.steps.Do(ctx, c, tool.LastingEffect, func(ctx context.Context) (*tool.Result, error) {
		runner, err := l.runner(ctx)
		if err == nil {
			p, err = runner.Start(ctx, cmd)
		}
		if err == nil {
			p = l.recorded(ctx, p, o.Argv)
		}
		return &tool.Result{}, err
	})
	return p, out, err
}

// insideOp works on files inside the sandbox, anywhere.
type insideOp struct{ inside.Ask }

// event returns the record of an operation that reads or changes content. Listing and watching
// leave no record.
func (o insideOp) event() Event {
	if o.Do == inside.Stat || o.Do == inside.List || o.Do == inside.Watch {
		return Event{}
	}
	e := Event{Tool: "inside_" + clip.Text(o.Do), Path: clip.Text(string(o.Path))}
	if len(o.To) > 0 {
		e.Args = map[string]any{"to": clip.Text(string(o.To))}
	}
	return e
}

func (o insideOp) do(ctx context.Context, l *local, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	if err := l.dir.Check(ctx); err != nil {
		return struct{}{}, journal.Outcome{}, err
	}
	effect := tool.NoEffect
	if o.Changes() {
		effect = tool.ProgramEffect
	}
	_, effects, err := l.steps.Do(ctx, c, effect, func(ctx context.Context) (*tool.Result, error) {
		return &tool.Result{}, l.inside(ctx, &o.Ask, io)
	})
	return struct{}{}, journal.Outcome{Effects: effects}, err
}

// inside performs the operation once there is room for it. If the disk limit is enforced by ending
// programs, an interrupted write gets that as its error.
func (l *local) inside(ctx context.Context, a *inside.Ask, io hold.Streams) error {
	if a.Grows() {
		if err := l.room(ctx); err != nil {
			return err
		}
		l.disk.Begin()
	}
	io, touched := hold.Noting(io)
	err := l.box.Files(ctx, touched, func(on sandbox.FileSystem) error {
		return inside.Serve(ctx, on, a, io.Stdin, io.Stdout)
	})
	if a.Grows() && errors.Is(err, sandbox.ErrInterrupted) && ctx.Err() == nil {
		err = cmp.Or(l.dir.Room(ctx), err)
	}
	return err
}

// importOp unpacks its input stream.
type importOp struct {
	Dest string `json:"dest"`
}

func (o importOp) event() Event { return Event{Tool: "import", Path: clip.Text(o.Dest)} }

func (o importOp) do(ctx context.Context, l *local, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	if err := l.dir.Room(ctx); err != nil {
		return nil, journal.Outcome{}, err
	}
	var done *vfs.Transfer
	_, effects, err := l.steps.Do(ctx, c, tool.FileEffect, func(ctx context.Context) (_ *tool.Result, err error) {
		done, err = l.files.Import(ctx, &roomyReader{ctx: ctx, r: io.Stdin, room: l.dir.Reserve}, o.Dest)
		if err == nil {
			err = l.dir.Stored()
		}
		if err != nil && (done == nil || done.Files+done.Directories == 0) {
			return nil, err
		}
		return &tool.Result{Changes: []tool.Change{{Path: clip.Text(o.Dest)}}}, l.stays(done, err)
	})
	return done, journal.Outcome{Effects: effects}, err
}

// stays adds to the error of an import what it has copied.
func (l *local) stays(done *vfs.Transfer, err error) error {
	if err == nil {
		return nil
	}
	e := *tool.AsError(err)
	e.Message += fmt.Sprintf("; what was copied before that stays (files: %d)", done.Files)
	if l.steps.Each {
		e.Message += "; wisbox undo " + l.dir.ID() + " takes it back"
	}
	return &e
}

// roomyReader ends a stream when the host has no room for more: what is written into an image takes it only later.
type roomyReader struct {
	ctx  context.Context
	r    io.Reader
	room func(context.Context) error
	left int64 // bytes until the next look
}

// Read implements io.Reader.
func (r *roomyReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if err := r.room(r.ctx); err != nil {
			return 0, err
		}
		r.left = roomEvery
	}
	n, err := r.r.Read(p)
	r.left -= int64(n)
	return n, err
}

// roomEvery is much less than the host's reserve.
const roomEvery = 4 << 20

// exportOp writes its output stream.
type exportOp struct {
	Path     string `json:"path"`
	Sparse   bool   `json:"sparse,omitempty"`
	LeaveOut bool   `json:"leave_out,omitempty"`
}

func (o exportOp) event() Event { return Event{Tool: "export", Path: clip.Text(o.Path)} }

func (o exportOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	done, err := l.files.ExportWith(ctx, o.Path, io.Stdout, &vfs.ExportOptions{Sparse: o.Sparse, LeaveOut: o.LeaveOut})
	return done, journal.Outcome{}, err
}

// undoOp undoes calls.
type undoOp struct {
	Step string `json:"step,omitempty"`
}

func (o undoOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	done, err := l.steps.Undo(ctx, o.Step)
	if err != nil {
		return done, journal.Outcome{}, err
	}
	return done, journal.Outcome{Effects: journal.EffectsOf(done.Restored.Changes())}, nil
}

// stepsOp lists what can be undone, and leaves no record.
type stepsOp struct {
	N int `json:"n,omitempty"`
}

const maxSteps = 20 // in the list

func (o stepsOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if o.N <= 0 || o.N > maxSteps {
		o.N = maxSteps
	}
	steps, err := l.steps.List(ctx, o.N)
	return steps, journal.Outcome{}, err
}

// removeSnapshotsOp removes snapshots.
type removeSnapshotsOp struct {
	IDs []string `json:"ids"`
}

func (o removeSnapshotsOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return struct{}{}, journal.Outcome{}, l.snapshots.Remove(ctx, o.IDs...)
}

// saveOp writes an archive to its output stream.
type saveOp struct{}

func (o saveOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	info, err := l.save(ctx, io.Stdout)
	return info, journal.Outcome{}, err
}

// copyOp copies the session's state into sessions that are being created.
type copyOp struct {
	To []string `json:"to"` // the names of these sessions
}

// copied is the answer: the state that isn't in the session's directory, and what the copies lack.
type copied struct {
	secrets map[string]box.Secret // must never leave the process

	Skipped []string `json:"skipped,omitempty"`
	Unkept  []string `json:"unkept,omitempty"`
}

func (o copyOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	info, err := l.copyTo(ctx, o.To)
	return copied{l.secrets.Copy(), info.Skipped, info.Unkept}, journal.Outcome{}, err
}

// secretsOp gives the session secrets.
type secretsOp struct {
	Secrets map[string]box.Secret `json:"secrets"`
}

func (o secretsOp) event() Event {
	return Event{Tool: "secret", Args: map[string]any{"names": strings.Join(slices.Sorted(maps.Keys(o.Secrets)), " ")}}
}

func (o secretsOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return struct{}{}, journal.Outcome{}, l.setSecrets(ctx, o.Secrets)
}

// inspectOp describes the session, and leaves no record.
type inspectOp struct{}

func (o inspectOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	in, err := l.inspect(ctx)
	return in, journal.Outcome{}, err
}

// usageOp returns the session's resource usage.
type usageOp struct{}

func (o usageOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return l.usage(ctx), journal.Outcome{}, nil
}

// resetOp gives the session a new workspace and no programs, see [executor].
type resetOp struct{}

func (o resetOp) do(context.Context, *local, journal.Call, hold.Streams) (any, journal.Outcome, error) {
	return nil, journal.Outcome{}, tool.Errorf(tool.Internal, "a reset replaces other calls and isn't done beside them")
}
