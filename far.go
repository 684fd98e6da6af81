package wisbox

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/packing"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// there is the place of sessions on another machine, whose wisbox does all of their work. This machine keeps only the
// records of their mounts.
type there struct {
	opts    *Options
	log     *slog.Logger
	conns   *far.Client
	client  *hold.Client
	records packing.Records
	web     bool                                                        // requires an API key
	why     func(ctx context.Context, began time.Time, err error) error // adds the known cause of a call's error; may be nil
}

func newThere(opts *Options, log *slog.Logger) (*there, error) {
	way, err := wayTo(opts)
	if err != nil {
		return nil, err
	}
	return thereBy(way, placeOf(way), opts, log)
}

// thereBy returns the place that way leads to. name is the directory of its records.
func thereBy(way far.Way, name string, opts *Options, log *slog.Logger) (_ *there, err error) {
	root := opts.CacheDir
	if root == "" {
		if root, err = overlay.DefaultRoot(); err != nil {
			return nil, err
		}
	}
	t := &there{opts: opts, log: log, conns: far.NewClient(way, helloOf(opts))}
	_, t.web = way.(*far.Web)
	t.records = packing.RecordsOf(root, name)
	t.client = &hold.Client{Far: true, Dial: func(ctx context.Context) (*hold.Conn, error) {
		return hold.On(t.conns.Dial(ctx))
	}}
	return t, nil
}

func wayTo(opts *Options) (far.Way, error) {
	if opts.FarConnect != nil {
		return far.Func{Name: cmp.Or(opts.Far, "the other machine"), Dial: opts.FarConnect}, nil
	}
	way, err := far.Parse(opts.Far)
	if web, ok := way.(*far.Web); ok {
		err = web.Use(opts.FarKey, opts.FarCAFile)
	}
	return way, err
}

// placeOf returns the name of a machine for its records. Two machines may be ports of one host.
func placeOf(way far.Way) string {
	if s, ok := way.(interface{ Place() string }); ok {
		return s.Place()
	}
	return way.String()
}

// hello returns this machine's version and protocol, which must match the other machine's.
func (m *Manager) hello() far.Hello { return helloOf(&m.opts) }

func helloOf(opts *Options) far.Hello {
	version := opts.Version
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		version = info.Main.Version
	}
	return far.Hello{Version: cmp.Or(version, "of no version"), Protocol: farVersion + "." + hold.Version}
}

// farVersion is the version of the operations on a place.
const farVersion = "1"

// errElsewhere returns the error of an operation that can't be done for sessions of another machine.
func (m *Manager) errElsewhere(what string) error {
	switch {
	case far.IsKube(m.opts.Far):
		return tool.Errorf(tool.Unsupported, "%s is not supported for sessions on Kubernetes", what)
	case m.there.web:
		return tool.Errorf(tool.Unsupported, "%s is only possible on the machine that has the sessions, %s; ask the operator of its wisbox serve", what, m.there.conns.Machine())
	}
	return tool.Errorf(tool.Unsupported, "%s is only possible on the machine that has the sessions; use wisbox there: ssh %s", what, m.there.conns.Machine())
}

func (t *there) close() error {
	return t.conns.Close()
}

// ask performs one operation on the other machine's place.
func (t *there) ask(ctx context.Context, op string, args any, io hold.Streams, answer any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	got := &hold.Answer{}
	err = t.client.Do(ctx, hold.Request{Op: op, Args: raw}, io, got)
	if errors.Is(err, hold.ErrConnectionLost) && specByName[op].repeats {
		err = t.client.Do(ctx, hold.Request{Op: op, Args: raw}, io, got)
	}
	if err != nil {
		return err
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(got.Value, answer)
}

// because adds the known cause of the error of a call, of what happened since the call began.
func (t *there) because(ctx context.Context, began time.Time, err error) error {
	if t.why == nil || err == nil {
		return err
	}
	return t.why(ctx, began, err)
}

// errKilled asks why a program ended that nobody here killed.
var errKilled = tool.Errorf(tool.Unavailable, "the program was killed from outside the sandbox")

// killed returns an error if the end of the sandbox ended a program: its status may arrive before the connection breaks.
func (t *there) killed(ctx context.Context, began time.Time, status sandbox.Status) error {
	switch status {
	case sandbox.StatusSignaled, sandbox.StatusCancelled, sandbox.StatusSandboxLost:
	default:
		return nil
	}
	if err := t.because(ctx, began, errKilled); err != error(errKilled) { //nolint:errorlint // an explained error wraps it
		return err
	}
	return nil
}

// ephemeralIdle is how long a session that isn't kept stays on the other machine after its client was last connected:
// after a broken connection the client finds it again.
const (
	ephemeralIdle = time.Hour
	touchEvery    = 10 * time.Minute
)

// sent returns a session's options for the other machine.
func (t *there) sent(o SessionOptions) (*farOptions, error) {
	if o.Seccomp != "" {
		return nil, tool.Errorf(tool.Unsupported, "a seccomp profile can't be sent to another machine; leave seccomp out").In("seccomp")
	}
	values, err := box.NewVault(o.Name, inner(o.Secrets)).Values()
	if err != nil {
		return nil, box.FirstOf(err)
	}
	out := &farOptions{SessionOptions: o, Name: o.Name, Pull: o.Pull, Values: values}
	out.Secrets, out.AllowedRoots = nil, nil
	if !o.Kept {
		out.Idle = ephemeralIdle
	}
	if len(o.Mounts) > 0 && o.packed == nil {
		out.MountsFrom = cmp.Or(hostName(), "another machine")
	}
	return out, nil
}

func hostName() string {
	name, _ := os.Hostname()
	return name
}

func (t *there) open(ctx context.Context, o SessionOptions) (*opened, error) {
	out, err := t.sent(o)
	if err != nil {
		return nil, err
	}
	streams := hold.Streams{Stdin: o.packed}
	var pack *packing.Pack
	roots := slices.Concat(t.opts.AllowedRoots, o.AllowedRoots)
	if o.packed == nil { // else the files come from a client of this process
		if pack, err = packing.Copy(ctx, o.Mounts, hostmount.Options{AllowedRoots: roots, Progress: o.OnMount, MaxBytes: o.Limits.WithDefaults().Disk, MaxFiles: o.Limits.WithDefaults().Inodes}); err != nil {
			return nil, err
		}
	}
	defer pack.Close()
	if pack != nil {
		out.Mounts, streams.Stdin = pack.Mounts, pack.Stream(ctx)
	}
	var made farSession
	if err := t.ask(pulling(ctx, o), "open", openArgs{*out}, streams, &made); err != nil {
		return nil, pack.Because(err)
	}
	if err := t.fresh(made, o.Name); err != nil {
		return nil, t.undo(ctx, err, made)
	}
	s := t.opened(made, o.Kept, o.OnEvent)
	if pack != nil {
		if err := t.records.Keep(s.at.ID(), packing.Record{Created: made.Created, Mounts: pack.Mounts, Roots: roots, MaxBytes: o.Limits.WithDefaults().Disk, MaxFiles: o.Limits.WithDefaults().Inodes}); err != nil {
			return nil, errors.Join(err, s.close(ctx, false), t.remove(context.WithoutCancel(ctx), s.at.ID()))
		}
		if o.OnMounted != nil {
			o.OnMounted(pack.Report)
		}
	}
	return s, nil
}

// pulling returns a context that passes the progress of a pull to OnPull.
func pulling(ctx context.Context, o SessionOptions) context.Context {
	if o.OnPull == nil {
		return ctx
	}
	return tool.WithProgress(ctx, func(text string) {
		var p PullProgress
		if json.Unmarshal([]byte(text), &p) == nil && p.Image != "" {
			o.OnPull(p)
		}
	})
}

// errOther reports an answer for the wrong session. This machine finds its record of mounts by the session's name, so
// the other machine must not choose the name.
var errOther = tool.Errorf(tool.Unavailable, "the other machine answered for the wrong session; nothing was written here; check that machine before you use it again")

// is checks that an answer is for the requested session.
func (s farSession) is(name string) error {
	if !sessionName().MatchString(s.Options.Name) || s.Options.Name != name {
		return errOther
	}
	return nil
}

// fresh checks the answer about a new session, and removes the record of an older session with its name. A session that
// the other machine has named must have no record here.
func (t *there) fresh(s farSession, asked string) error {
	if err := s.is(cmp.Or(asked, s.Options.Name)); err != nil {
		return err
	}
	if asked == "" {
		if t.records.Exist(s.Options.Name) {
			return errOther
		}
		return nil
	}
	return t.records.Remove(s.Options.Name)
}

// undo removes new sessions that can't be used here. After an answer for the wrong session it removes none.
func (t *there) undo(ctx context.Context, err error, made ...farSession) error {
	if errors.Is(err, errOther) {
		return err
	}
	for _, s := range made {
		err = errors.Join(err, t.ask(context.WithoutCancel(ctx), "remove", named1{s.Options.Name}, hold.Streams{}, nil))
	}
	return err
}

// opened returns the session of a description.
func (t *there) opened(s farSession, kept bool, onEvent func(Event)) *opened {
	o := s.Options.SessionOptions
	o.Name, o.Kept, o.OnEvent = s.Options.Name, kept, onEvent
	at := &outpost{t: t, id: o.Name, made: s.Created}
	at.ctx, at.cancel = context.WithCancel(context.Background())
	if !kept {
		at.tasks.Go(at.stay)
	}
	return &opened{at: at, opts: o, exec: &distant{t: t, at: at, opts: o}}
}

func (t *there) load(ctx context.Context, r io.Reader, o LoadOptions) (*opened, []string, error) {
	args := loadArgs{Name: o.Name, WithSettings: o.WithSettings}
	kept := o.Kept
	settings := SessionOptions{}
	if o.Settings != nil {
		settings, kept = *o.Settings, kept || o.Settings.Kept
	}
	if len(settings.Mounts) > 0 {
		return nil, nil, tool.Errorf(tool.Unsupported, "mounts and an archive exclude each other on another machine; load the archive, then copy files in with wisbox cp").In("mounts")
	}
	settings.Kept = kept
	var err error
	if args.Options, err = t.sent(settings); err != nil {
		return nil, nil, err
	}
	var made farSession
	if err := t.ask(ctx, "load", args, hold.Streams{Stdin: r}, &made); err != nil {
		return nil, nil, err
	}
	if err := t.fresh(made, cmp.Or(settings.Name, o.Name)); err != nil {
		return nil, nil, t.undo(ctx, err, made)
	}
	return t.opened(made, kept, settings.OnEvent), made.Left, nil
}

func (t *there) fork(ctx context.Context, s *Session, n int, o CloneOptions) ([]*opened, error) {
	args := forkArgs{Name: s.ID(), To: o.Name, N: n}
	if !o.Kept {
		args.Idle = ephemeralIdle
	}
	var made []farSession
	if err := t.ask(ctx, "fork", args, hold.Streams{}, &made); err != nil {
		return nil, err
	}
	if len(made) != n {
		return nil, errOther
	}
	for i, c := range made {
		if err := t.fresh(c, cloneName(o.Name, i, n)); err != nil {
			return nil, t.undo(ctx, err, made...)
		}
	}
	source := t.recall(s.at.(*outpost))
	all := make([]*opened, len(made))
	var err error
	for i, c := range made {
		all[i] = t.opened(c, o.Kept, o.OnEvent)
		if source != nil && err == nil {
			err = t.records.Keep(all[i].at.ID(), packing.Record{Created: c.Created, Mounts: source.Mounts, Roots: source.Roots})
		}
		if o.Remount && err == nil {
			err = t.fill(ctx, all[i].at.(*outpost))
		}
	}
	if err != nil {
		for _, c := range all {
			err = errors.Join(err, c.close(ctx, false), t.remove(context.WithoutCancel(ctx), c.at.ID()))
		}
		return nil, err
	}
	return all, nil
}

func (t *there) attach(ctx context.Context, name string) (*opened, error) {
	var found farSession
	if err := t.ask(ctx, "attach", named1{name}, hold.Streams{}, &found); err != nil {
		return nil, err
	}
	if err := found.is(name); err != nil {
		return nil, err
	}
	return t.opened(found, true, nil), nil
}

func (t *there) list(ctx context.Context) (all []overlay.Entry, err error) {
	err = t.ask(ctx, "list", nothing{}, hold.Streams{}, &all)
	return all, err
}

func (t *there) stop(ctx context.Context, name string) error {
	return t.ask(ctx, "stop", named1{name}, hold.Streams{}, nil)
}

func (t *there) rename(ctx context.Context, name, to string) error {
	if err := t.ask(ctx, "rename", renameArgs{name, to}, hold.Streams{}, nil); err != nil {
		return err
	}
	return t.records.Rename(name, to)
}

func (t *there) readLog(ctx context.Context, name string, connections bool, each func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	over := make(chan error, 1)
	go func() {
		err := t.ask(ctx, "log", logArgs{name, connections}, hold.Streams{Stdout: w}, nil)
		_ = w.CloseWithError(err)
		over <- err
	}()
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(lines)
		if err == nil {
			err = each(bytes.TrimSuffix(line, []byte{'\n'}))
		}
		switch {
		case errors.Is(err, io.EOF):
			return <-over
		case err != nil:
			cancel()
			_ = r.CloseWithError(err)
			return cmp.Or(err, <-over)
		}
	}
}

// maxLine is the maximum length of the other machine's lines in bytes, far more than wisbox writes.
const maxLine = 16 << 20

// readLine reads a line with its end. The caller owns the result.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return nil, tool.Errorf(tool.Limit, "the other machine sent a line of more than %d MiB, the maximum; check that machine", maxLine>>20)
		}
	}
}

func (t *there) remove(ctx context.Context, name string) error {
	if err := t.ask(ctx, "remove", named1{name}, hold.Streams{}, nil); err != nil {
		return err
	}
	_ = t.records.Remove(name) // a leftover record belongs to no session
	return nil
}

func (t *there) templates() (all []Template, err error) {
	err = t.ask(context.Background(), "templates", nothing{}, hold.Streams{}, &all)
	return all, err
}

func (t *there) findTemplate(ref, owner string) (found Template, err error) {
	err = t.ask(context.Background(), "template_find", templateArgs{ref, owner}, hold.Streams{}, &found)
	return found, err
}

func (t *there) removeTemplate(ctx context.Context, id string) error {
	return t.ask(ctx, "template_remove", named1{id}, hold.Streams{}, nil)
}

func (t *there) recall(at *outpost) *packing.Record { return t.records.Of(at.id, at.made) }

// fill sends the mounts again.
func (t *there) fill(ctx context.Context, at *outpost) error {
	p, err := t.pack(ctx, at)
	if err != nil {
		return err
	}
	defer p.Close()
	return t.send(ctx, at, p)
}

// pack packs the mounts of a session; nil if it has none.
func (t *there) pack(ctx context.Context, at *outpost) (*packing.Pack, error) {
	m := t.recall(at)
	if m == nil {
		return nil, nil
	}
	return packing.Copy(ctx, m.Mounts, hostmount.Options{AllowedRoots: m.Roots, MaxBytes: m.MaxBytes, MaxFiles: m.MaxFiles})
}

func (t *there) send(ctx context.Context, at *outpost, p *packing.Pack) error {
	if p == nil {
		return nil
	}
	return p.Because(at.fill(ctx, p.Stream(ctx)))
}

// outpost is the site of a session on another machine.
type outpost struct {
	t      *there
	id     string
	made   overlay.Stamp
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	left   func() error // called by Close; may be nil
}

func (e *outpost) ID() string { return e.id }

func (e *outpost) WorkspacePath() string { return "" }

// Touch is left to the other machine, which sees each call.
func (e *outpost) Touch() {}

func (e *outpost) created() overlay.Stamp { return e.made }

func (e *outpost) renew(ctx context.Context) error {
	return e.t.ask(ctx, "touch", named1{e.id}, hold.Streams{}, nil)
}

func (e *outpost) fill(ctx context.Context, mounts io.Reader) error {
	return e.t.ask(ctx, "fill", fillArgs{e.id}, hold.Streams{Stdin: mounts}, nil)
}

func (e *outpost) look(ctx context.Context, l far.Look, w io.Writer) (all []far.File, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	err = e.t.ask(ctx, "look", lookArgs{e.id, l}, hold.Streams{Stdout: w}, &all)
	return all, err
}

// stay renews the lease of a session that isn't kept while its client lives.
func (e *outpost) stay() {
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		if err := e.renew(e.ctx); err != nil {
			e.t.log.Info("report a use of a session", "session", e.id, "error", err)
		}
	}
}

// awake is left to the other machine.
func (e *outpost) awake() error { return nil }

func (e *outpost) renewed(any) error { return nil }

func (e *outpost) Close() error {
	e.cancel()
	e.tasks.Wait()
	if e.left == nil {
		return nil
	}
	return e.left()
}

func (e *outpost) Files() fs.FS { return far.Files{Ask: e.look} }

func (e *outpost) Watch(ctx context.Context, path string) (<-chan vfs.Change, error) {
	ctx, cancel := context.WithCancel(ctx)
	free := context.AfterFunc(e.ctx, cancel)
	r, w := io.Pipe()
	var failed error
	ended := make(chan struct{})
	go func() {
		defer cancel()
		failed = e.t.ask(ctx, "watch", watchArgs{e.id, path}, hold.Streams{Stdout: w}, nil)
		close(ended)
		_ = w.Close()
	}()
	lines := bufio.NewReader(r)
	if _, err := readLine(lines); err != nil { // an empty line reports that it watches
		cancel()
		free()
		_ = r.CloseWithError(err)
		<-ended
		return nil, cmp.Or(failed, err)
	}
	out := make(chan vfs.Change)
	go func() {
		defer close(out)
		defer free()
		defer cancel()
		defer r.Close()
		for {
			var c vfs.Change
			line, err := readLine(lines)
			if err != nil || json.Unmarshal(line, &c) != nil {
				return
			}
			select {
			case out <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Digest refuses, since its files are on the other machine.
func (e *outpost) Digest() *digest.Digester { return e.t.digest("") }

func (t *there) digest(string) *digest.Digester {
	err := tool.Errorf(tool.Unsupported, "use the tool for the digest of a session on another machine: wisbox call SESSION workspace_digest '{}'")
	return digest.New(&digest.Options{
		Files: noFiles{err}, Log: t.log,
		Kept: func(context.Context) (*digest.Text, error) { return nil, err },
		Keep: func(context.Context, *digest.Text) error { return err },
	})
}

type noFiles struct{ err error }

// Open implements fs.FS.
func (n noFiles) Open(string) (fs.File, error) { return nil, n.err }

// distant delegates a session's work to the other machine's wisbox.
type distant struct {
	t    *there
	at   *outpost
	opts SessionOptions
}

// byFar is an operation that needs more than a request and an answer if another machine performs it.
type byFar interface {
	byFar(ctx context.Context, d *distant, c journal.Call, io hold.Streams) (any, journal.Outcome, error)
}

func (d *distant) do(ctx context.Context, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	if special, ok := op.(byFar); ok {
		return special.byFar(ctx, d, c, io)
	}
	return d.ask(ctx, c, op, io)
}

func (d *distant) ask(ctx context.Context, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	req, err := requestOf(c, op)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	req.Session = d.at.id
	answer, began := &hold.Answer{}, time.Now()
	err = d.t.because(ctx, began, d.t.client.Do(ctx, req, io, answer))
	if err == nil {
		err = d.t.killed(ctx, began, sandbox.Status(answer.Verdict))
	}
	return answerOf(ctx, op, answer, err)
}

func (d *distant) start(ctx context.Context, c journal.Call, op starter, io hold.Streams) (sandbox.Process, journal.Outcome, error) {
	req, err := requestOf(c, op)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	req.Session, req.Joins = d.at.id, specOf(op).programs
	began := time.Now()
	p, err := d.t.client.Start(ctx, req, io)
	if err != nil {
		return nil, journal.Outcome{Effects: Effects{Unknown: tool.KindOf(err) != tool.Invalid}}, d.t.because(ctx, began, err)
	}
	p = sandbox.OnEnd(p, func(ctx context.Context, res sandbox.Result, err error) (sandbox.Result, error) {
		if err != nil {
			return res, d.t.because(ctx, began, err)
		}
		return res, d.t.killed(ctx, began, res.Status)
	})
	return p, journal.Outcome{Effects: Effects{Unknown: true}}, nil
}

// record leaves the log to the other machine.
func (d *distant) record(event Event, err error, _ bool) (Event, error) { return event, err }

func (d *distant) close(context.Context, bool) error { return nil }

func (d *distant) letGo(context.Context, bool) error { return nil }

// reset packs the mounts before the session is emptied, and sends them once it is.
func (d *distant) reset(ctx context.Context, c journal.Call, replace func(func() (any, error)) error) error {
	p, err := d.t.pack(ctx, d.at)
	if err != nil {
		return err
	}
	defer p.Close()
	if _, _, err := d.ask(ctx, c, resetOp{}, hold.Streams{}); err != nil {
		return err
	}
	return replace(func() (any, error) { return nil, d.t.send(ctx, d.at, p) })
}

func (d *distant) steady(context.Context) (unlock func(), err error) { return func() {}, nil }

// byFar also sends the values of secrets from files.
func (o secretsOp) byFar(ctx context.Context, d *distant, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	values, err := box.NewVault(d.at.id, o.Secrets).Values()
	if err != nil {
		return nil, journal.Outcome{}, box.FirstOf(err)
	}
	sent := secretsOp{Secrets: map[string]box.Secret{}}
	for name, value := range values {
		sent.Secrets[name] = box.Secret{Value: value}
	}
	return d.ask(ctx, c, sent, io)
}

// byFar copies the bytes of the connection, while a holder passes a descriptor.
func (o dialOp) byFar(ctx context.Context, d *distant, c journal.Call, streams hold.Streams) (any, journal.Outcome, error) { //nolint:unparam // as the others
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	began := time.Now()
	conn, err := far.PortStart(func(in io.Reader, out io.Writer) (sandbox.Process, error) {
		req := hold.Request{Op: portOp, Session: d.at.id, Call: c.ID, Args: raw}
		return d.t.client.Start(ctx, req, hold.Streams{Stdin: in, Stdout: out})
	})
	if err != nil {
		return nil, journal.Outcome{}, d.t.because(ctx, began, err)
	}
	return struct{}{}, journal.Outcome{}, streams.Conn(conn)
}
