package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// local does a session's work in this process.
type local struct {
	m    *here
	dir  *overlay.Dir
	opts SessionOptions
	box  *box.Box
	disk *box.DiskWatch

	secrets *box.Vault
	door    *door.Door

	*services
	own *tool.Set // under wisbox's own names
	set *tool.Set // of the session's profile

	ends ends            // the ends of programs, which are recorded
	live journal.Running // the calls that it performs now

	reserved atomic.Int64 // when the host last had free space, as time since started

	holds  atomic.Bool // this process is the session's holder: a later one takes over the programs that it leaves
	behind atomic.Bool // an earlier holder left a paused container with programs to take over
	taking *lock.Mutex // held while they are taken over
	leave  atomic.Bool // this process ends, but its programs stay

	lost   bool        // an earlier holder was killed
	unsaid atomic.Bool // and no result has reported it yet
}

// newLocal creates the tools of a session over its files, and over a pooled session's existing
// sandbox.
func (h *here) newLocal(item *pooled, opts SessionOptions, files *vfs.FS) (_ *local, err error) {
	l := &local{m: h, dir: item.dir, opts: opts, box: item.box, taking: lock.New()}
	if l.box == nil {
		l.box = l.newBox()
	}
	l.secrets = box.NewVault(l.dir.ID(), inner(opts.Secrets))
	if l.door, err = l.newDoor(); err != nil {
		return nil, err
	}
	if len(opts.Secrets)+len(opts.Services) > 0 || opts.rules().Opens() {
		if err := l.fit(h.ctx); err != nil {
			return nil, err
		}
	}
	l.disk = &box.DiskWatch{Dir: l.dir, Box: l.box}
	return l, l.furnish(files)
}

// furnish creates the tools over those files.
func (l *local) furnish(files *vfs.FS) error {
	var cleanup undo.Steps
	defer cleanup.Run()
	files.SetInPlace(l.box.Busy)
	s, err := l.newServices(files)
	if err != nil {
		return err
	}
	cleanup.Add(func() { _ = s.close() })
	own := s.tools(l.room)
	set, err := shaped(own, l.opts.Profile)
	if err != nil {
		return err
	}
	cleanup.Keep()
	l.services, l.own, l.set = s, own, set
	return nil
}

func (l *local) newBox() *box.Box {
	opts := &box.Options{
		Make: l.makeSandbox, Log: l.m.log, Tracer: l.m.tracer, Awake: l.awake,
		Stood: func() time.Duration { return l.dir.Current().StoodAt(overlay.Now()) },
	}
	if l.m.meter != nil {
		opts.Ended = l.m.meter.Ended
	}
	return box.New(opts)
}

// enter notes a call until leave; one that leaves no record isn't noted.
func (l *local) enter(ctx context.Context, c journal.Call, op operation) (leave func()) {
	e := eventOf(op)
	if e.Tool == "" {
		return func() {}
	}
	e.Session, e.Call, e.Caller = l.dir.ID(), c.ID, journal.CallerOf(ctx)
	if r := l.secrets.Redactor(); r != nil {
		e.Redact(r)
	}
	return l.live.Add(e)
}

func (l *local) do(ctx context.Context, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	defer l.enter(ctx, c, op)()
	return op.do(ctx, l, c, io)
}

// start notes the call as long as its program runs, unless the program is one of [Session.Processes].
func (l *local) start(ctx context.Context, c journal.Call, op starter, io hold.Streams) (sandbox.Process, journal.Outcome, error) {
	leave := l.enter(ctx, c, op)
	p, out, err := op.start(ctx, l, c, io)
	if err != nil || specOf(op).joins {
		leave()
		return p, out, err
	}
	return sandbox.Follow(context.WithoutCancel(ctx), p, l.ends.Go, func(res sandbox.Result, err error) (sandbox.Result, error) {
		leave()
		return res, err
	}), out, nil
}

// record writes to the log. A failed write doesn't fail the call, whose work is done.
func (l *local) record(event Event, err error, _ bool) (Event, error) {
	if r := l.secrets.Redactor(); r != nil {
		event.Redact(r)
	}
	err = l.secrets.CleanError(err)
	if failed := l.dir.AppendLog(event); failed != nil {
		l.m.log.Warn("append to the session's log", "session", l.dir.ID(), "error", failed)
	}
	return event, err
}

// setSecrets stores names and files with the session, and values in memory.
func (l *local) setSecrets(ctx context.Context, all map[string]box.Secret) error {
	l.secrets.Set(all)
	err := l.updateSettings(ctx, func(o *SessionOptions) {
		if o.Secrets == nil {
			o.Secrets = map[string]Secret{}
		}
		maps.Copy(o.Secrets, outer(all))
	})
	return errors.Join(err, l.fit(ctx))
}

// fit sets the additions to the session's sandboxes.
func (l *local) fit(ctx context.Context) error {
	return l.box.Fit(ctx, box.Fitting{Prepare: l.prepare, Env: l.door.Env, Left: l.door.Left})
}

func (l *local) prepare(ctx context.Context, sb sandbox.Sandbox) error {
	if err := l.secrets.Hand(ctx, sb); err != nil {
		return err
	}
	if err := l.door.Prepare(ctx, sb); err != nil { // must come first: the door needs its own ports
		return err
	}
	return l.accompany(ctx, sb)
}

// updateSettings changes the session's options in session.json.
func (l *local) updateSettings(ctx context.Context, change func(*SessionOptions)) error {
	return l.dir.Update(ctx, inSettings(change))
}

// inSettings returns the change of a record that changes the session's options in it.
func inSettings(change func(*SessionOptions)) func(*overlay.State) error {
	return func(s *overlay.State) error {
		var o SessionOptions
		if err := json.Unmarshal(s.Settings, &o); err != nil {
			return err
		}
		change(&o)
		settings, err := json.Marshal(o)
		s.Settings = settings
		return err
	}
}

// runner returns the sandbox's runner for a call. It first checks that the workspace still exists,
// so that a deleted one is reported in our words and not in the runtime's. If the host or the
// session is full, it fails, because a program could fill it more.
func (l *local) runner(ctx context.Context) (sandbox.Runner, error) {
	if err := l.room(ctx); err != nil {
		return nil, err
	}
	l.disk.Begin()
	runner := box.Redacted(l.box, l.secrets.Redactor())
	if l.closed(ctx) {
		runner = l.door.Closed(runner)
	}
	return runner, nil
}

// closed reports whether programs have no network. Those of a Pod have the Pod's.
func (l *local) closed(ctx context.Context) bool { return !l.m.opts.Single && !l.door.Opens(ctx) }

// room reports, by its error, whether the session and the host have room for more.
func (l *local) room(ctx context.Context) error {
	if err := l.reserve(ctx); err != nil {
		return err
	}
	return l.dir.Room(ctx)
}

// reserveEvery is how long an answer about the host's free space is valid: in that time, a disk
// doesn't fill by more than the reserve.
const reserveEvery = 200 * time.Millisecond

func (l *local) reserve(ctx context.Context) error {
	now := time.Since(started)
	if last := time.Duration(l.reserved.Load()); last != 0 && now-last < reserveEvery {
		return nil
	}
	if err := l.dir.Reserve(ctx); err != nil {
		return err
	}
	l.reserved.Store(int64(now))
	return nil
}

// started is the origin of monotonic times.
var started = time.Now()

// makeSandbox opens the session's running sandbox or creates one.
func (l *local) makeSandbox(ctx context.Context) (sandbox.Sandbox, error) {
	l.m.sweepSandboxes()
	spec := l.spec(ctx)
	for try := 1; ; try++ {
		sb, err := l.m.backend.Open(ctx, spec)
		if !errors.Is(err, sandbox.ErrNotFound) {
			return sb, err
		}
		sb, err = l.m.backend.Create(ctx, spec)
		if !errors.Is(err, sandbox.ErrExists) && !errors.Is(err, sandbox.ErrLost) || try == makeTries {
			return sb, err
		}
	}
}

// makeTries is the number of attempts to find a sandbox that another process is creating or ending
// at the same time.
const makeTries = 3

// spec returns the options of the sandbox.
func (o *SessionOptions) spec() sandbox.Spec {
	return sandbox.Spec{
		Image: o.Image, Limits: o.Limits, Env: o.Env, ExpandEnv: o.ExpandEnv, Strict: o.Strict, Isolation: o.Isolation, Seccomp: o.Seccomp,
		UserHome: o.UserHome,
	}
}

// image returns the image of programs: the one that the session was created with or, if that was
// another version's default and is gone, today's default.
func (l *local) image(ctx context.Context) string {
	store, ok := sandbox.As[sandbox.ImageStore](l.m.backend)
	if !ok || !images.OfOtherVersion(l.opts.Image) {
		return l.opts.Image
	}
	if _, err := store.ImageInfo(ctx, l.opts.Image); errors.Is(err, sandbox.ErrNotFound) {
		return images.Default
	}
	return l.opts.Image
}

func (l *local) spec(ctx context.Context) sandbox.Spec {
	o := l.settings()
	spec := o.spec()
	spec.Image = l.image(ctx)
	spec.LowPorts = l.door.Opens(ctx)
	spec.Wake = l.wake
	spec.ID, spec.Workspace, spec.Own = l.dir.ID(), l.dir.WorkspacePath(), sessionPath(l.dir)
	if user := l.dir.State().User; user != nil {
		spec.Owner = *user
	}
	return spec
}

func (l *local) inspect(ctx context.Context) (*Inspection, error) {
	out := about(l.dir, l.opts)
	if view, err := l.door.View(ctx); err == nil {
		out.Egress = shownEgress(view)
	}
	if l.lost {
		out.Gaps = append(out.Gaps, lossText)
	}
	if _, err := l.secrets.Values(); err != nil {
		out.Gaps = append(out.Gaps, tool.AsError(box.FirstOf(err)).Message)
	}
	if now := l.image(ctx); now != l.opts.Image {
		out.Gaps = append(out.Gaps, "the image "+l.opts.Image+" of another version is gone: programs run in "+now)
	}
	sb, done, err := l.looked(ctx)
	if err != nil { // the rest is still worth reporting
		out.Gaps = append(out.Gaps, "the container doesn't answer: "+tool.AsError(err).Message)
		return out, nil
	}
	if sb == nil {
		return out, nil
	}
	defer done()
	if out.Services, err = l.servicesIn(ctx, sb); err != nil {
		out.Gaps = append(out.Gaps, "the services can't be listed: "+tool.AsError(err).Message)
	}
	info, err := sb.Info(ctx)
	if err != nil {
		out.Gaps = append(out.Gaps, "the container doesn't answer: "+tool.AsError(toolerr.Of(err)).Message)
		return out, nil
	}
	info.Limits = box.WithDisk(info.Limits, box.DiskLimits(l.dir))
	out.Limits = info.Limits
	out.Sandbox, out.Gaps = &info, append(out.Gaps, info.Gaps...)
	return out, nil
}

// settings returns the session's options with its present limits.
func (l *local) settings() SessionOptions {
	o := l.opts
	o.Limits = limitsOf(l.dir, o)
	return o
}

// limitsOf returns the limits in the session's record, which [Session.SetLimits] may have changed
// since the options were read.
func limitsOf(dir *overlay.Dir, o SessionOptions) sandbox.Limits {
	var recorded struct {
		Limits sandbox.Limits `json:"limits"`
	}
	if err := json.Unmarshal(dir.Current().Settings, &recorded); err != nil || recorded.Limits == (sandbox.Limits{}) {
		return o.Limits
	}
	return recorded.Limits
}

// about describes a session by its directory.
func about(dir *overlay.Dir, o SessionOptions) *Inspection {
	state := dir.Current()
	o.Limits = limitsOf(dir, o)
	var snapshots *snapshot.Usage
	if used, err := snapshot.UsageOf(dir.Snapshots()); err == nil {
		used.Limit = o.snapshotSpace()
		snapshots = &used
	}
	var paused *time.Time
	if state.Pause != nil {
		paused = &state.Pause.Since.At
	}
	return &Inspection{
		Snapshots: snapshots, Paused: paused,
		ID: dir.ID(), Kept: o.Kept, State: string(state.Status), Created: state.Created.At,
		Image: o.Image, Workspace: dir.WorkspacePath(), Profile: o.Profile, Egress: shownEgress(closedEgress(dir, o)), Services: o.services(),
		Mounts: o.Mounts, Env: slices.Sorted(maps.Keys(o.Env)), Secrets: slices.Sorted(maps.Keys(o.Secrets)),
		Paths: o.Paths, AutoSnapshot: o.AutoSnapshot, TTL: o.TTL, Idle: o.Idle,
		Limits: box.WithDisk(o.Limits.Asked("nothing yet: the container comes with the first program"), box.DiskLimits(dir)),
	}
}

// diskUsage returns the usage of a session without a holder, as far as it is known.
func diskUsage(ctx context.Context, dir *overlay.Dir, o SessionOptions) *Usage {
	u := &Usage{Limits: limitsOf(dir, o)}
	u.Disk, u.Inodes, _ = dir.DiskUsed(ctx) // 0 if it isn't counted
	return u
}

func (l *local) usage(ctx context.Context) *Usage {
	u := diskUsage(ctx, l.dir, l.opts)
	sb, done, err := l.looked(ctx)
	if err != nil {
		u.Problem = "the container doesn't answer: " + tool.AsError(err).Message
	}
	if sb == nil {
		return u
	}
	defer done()
	u.Running = true
	if gauger, ok := sandbox.As[sandbox.Gauger](sb); ok {
		if now, err := gauger.Gauge(ctx); err == nil {
			u.Gauge = &now
		}
	}
	return u
}

// looked is like running for callers that only look: a container that an earlier holder left paused
// can't be asked.
func (l *local) looked(ctx context.Context) (sandbox.Sandbox, func(), error) {
	sb, err := l.box.Peek(ctx)
	if err == nil && sb == nil && l.awake() != nil {
		return nil, nil, nil
	}
	return l.running(ctx)
}

// running returns the running sandbox, of this process or another, if there is one.
func (l *local) running(ctx context.Context) (sandbox.Sandbox, func(), error) {
	sb, err := l.box.Peek(ctx)
	if err != nil || sb != nil {
		return sb, func() {}, err
	}
	sb, err = l.m.backend.Open(ctx, l.spec(ctx))
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, toolerr.Of(err)
	}
	return sb, func() { _ = sb.Detach() }, nil
}

func (l *local) close(ctx context.Context, keep bool) error {
	l.disk.End()
	end := l.box.Close
	if keep {
		end = l.box.Detach
	}
	errs := []error{l.letGo(ctx, keep), l.services.close(), end(ctx)} // calls of a frozen sandbox can't be waited for
	l.ends.wait(ctx)
	return errors.Join(errs...)
}

// reset gives the session a new workspace with its mounts, and no programs. It copies the mounts and
// keeps a snapshot of the old files before it changes anything; an error up to then changes nothing.
func (l *local) reset(ctx context.Context, _ journal.Call, replace func(func() (any, error)) error) error {
	next, err := l.dir.Prepare(ctx)
	if err != nil {
		return err
	}
	defer next.Discard()
	opts, early := l.opts, next.Root() != nil
	if early {
		err = l.m.mountInto(ctx, l.dir, next.Root(), &opts)
	}
	full := tool.KindOf(err) == tool.NoSpace && ctx.Err() == nil // the old files are in the way
	if err != nil && !full {
		return err
	}
	return replace(func() (any, error) {
		if err := l.box.Close(ctx); err != nil {
			return nil, err
		}
		kept, unkept := l.snapshots.Create(ctx, &snapshot.CreateOptions{Label: "before reset", Auto: true})
		if ctx.Err() != nil || full && unkept != nil {
			return nil, errors.Join(ctx.Err(), unkept)
		}
		if full {
			next.Discard()
			if next, err = l.dir.Prepare(ctx); err != nil {
				return nil, err
			}
		}
		if err := next.Place(ctx); err != nil {
			return nil, err
		}
		files, err := l.refurnish()
		if err != nil {
			return nil, err
		}
		if full || !early {
			if err := l.m.mountInto(ctx, l.dir, l.dir.Workspace(), &opts); err != nil {
				if unkept == nil {
					_, failed := l.snapshots.Restore(context.WithoutCancel(ctx), kept.ID, nil)
					err = errors.Join(err, failed)
				}
				return files, err
			}
		}
		l.opts.Mounts = opts.Mounts
		if len(opts.Mounts) == 0 || opts.MountsFrom != "" {
			return files, nil
		}
		return files, keepGiven(ctx, l.dir, opts)
	})
}

// refurnish makes the tools again, over a new workspace.
func (l *local) refurnish() (*vfs.FS, error) {
	if err := removeLisp(l.dir); err != nil {
		return nil, err
	}
	files, err := newFiles(l.dir, l.opts)
	if err != nil {
		return nil, err
	}
	old := l.services
	if err := l.furnish(files); err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return files, old.close()
}

// lossText describes the effects of a killed holder.
const lossText = "the process that held this session was killed, or ended for another version of wisbox: kept interpreters, their names and the processes that `wisbox ps` doesn't list are lost; files are not"

// noteLoss makes the session report the loss: in every inspect, and in the first evaluation on kept
// state.
func (l *local) noteLoss() {
	l.lost = true
	l.unsaid.Store(true)
}

// reclaimTime bounds the takeover of processes, which doesn't end with its caller because clients
// wait for it.
var reclaimTime = patience.For(15 * time.Second)

// reclaim takes over the processes that an earlier holder left. If the sandbox can't be reached,
// the session loses them, and they end after a minute.
func (l *local) reclaim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reclaimTime)
	defer cancel()
	there, err := l.box.Adopt(ctx, func(ctx context.Context) (sandbox.Sandbox, error) { return l.m.backend.Open(ctx, l.spec(ctx)) })
	n := 0
	if err == nil && there {
		err = l.box.EndOthers(ctx)
	}
	if err == nil && there {
		n, err = l.shell.Reclaim(ctx, l.detacher(), begunBy)
	}
	if err == nil && n > 0 {
		err = l.box.Ready(ctx) // so that running programs get their network and secrets again
	}
	if err != nil {
		l.m.log.Warn("take over the processes of a holder that was killed", "session", l.dir.ID(), "taken", n, "error", err)
	}
}

// detacher returns the sandbox for the takeover. It discards output that may contain a secret whose
// value nobody knows any more.
func (l *local) detacher() sandbox.Detacher {
	if _, err := l.secrets.Values(); err != nil {
		return silenced{l.box}
	}
	d, _ := sandbox.As[sandbox.Detacher](box.Redacted(l.box, l.secrets.Redactor()))
	return d
}

// silenced takes programs over without their output.
type silenced struct{ sandbox.Detacher }

// Attach implements [sandbox.Detacher].
func (s silenced) Attach(ctx context.Context, id uint64, cmd sandbox.Cmd) (sandbox.Process, error) {
	cmd.Stdout, cmd.Stderr = nil, nil
	return s.Detacher.Attach(ctx, id, cmd)
}

// sayLoss adds the loss to the result of the first evaluation.
func (l *local) sayLoss(res *tool.Result) *tool.Result {
	r, ok := res.Value.(evaltool.Result)
	if !ok || !l.unsaid.CompareAndSwap(true, false) {
		return res
	}
	if r.Message != "" {
		r.Message += "; "
	}
	r.Message += lossText
	said := *res
	said.Value, said.Text = r, r.Text()
	return &said
}

// markPath returns the path of the file that exists while the session's holder lives.
func markPath(dir *overlay.Dir) string { return filepath.Join(sessionPath(dir), hold.MarkName) }

// sessionPath returns the host directory of a session, which no program sees.
func sessionPath(dir *overlay.Dir) string { return filepath.Dir(dir.SnapshotsPath()) }

// limitsOp changes limits: those that aren't zero.
type limitsOp struct {
	Limits sandbox.Limits `json:"limits"`
}

func (o limitsOp) event() Event {
	e := Event{Tool: "update", Args: map[string]any{}}
	raw, _ := json.Marshal(o.Limits)
	_ = json.Unmarshal(raw, &e.Args)
	return e
}

func (o limitsOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if err := l.setLimits(ctx, o.Limits); err != nil {
		return nil, journal.Outcome{}, err
	}
	in, err := l.inspect(ctx)
	return in, journal.Outcome{}, err
}

// setLimits changes the container first, then the record and the disk; an error takes back what
// changed before. If this process is killed meanwhile, the record decides, and the next opening of the session
// brings the container and the disk to it. No container is created meanwhile.
func (l *local) setLimits(ctx context.Context, change sandbox.Limits) error {
	if l.m.opts.Single {
		return tool.Errorf(tool.Unsupported, "the limits of a session in a Pod are the Pod's, which can't change; create another session")
	}
	if err := l.awake(); err != nil {
		return err
	}
	return l.box.Alone(ctx, func(sb sandbox.Sandbox) error {
		if sb == nil { // another process may have left one
			if left, err := l.m.backend.Open(ctx, l.spec(ctx)); err == nil {
				defer func() { _ = left.Detach() }()
				sb = left
			}
		}
		was := l.settings().Limits.WithDefaults()
		now, err := changedLimits(was, change, sb != nil)
		if err != nil {
			return err
		}
		var back undo.Steps
		defer back.Run()
		if sb != nil && (now.CPUs != was.CPUs || now.Memory != was.Memory || now.PIDs != was.PIDs) {
			if err := l.resize(ctx, sb, was, now); err != nil {
				return err
			}
			back.Add(func() { _ = l.resize(context.WithoutCancel(ctx), sb, now, was) })
		}
		if err := l.dir.ResizeDisk(ctx, change.Disk, change.Inodes, inSettings(func(o *SessionOptions) { o.Limits = now })); err != nil {
			return err
		}
		back.Keep()
		return nil
	})
}

// changedLimits returns the limits after a change. A running container keeps the sizes that it was
// created with.
func changedLimits(was, change sandbox.Limits, running bool) (now sandbox.Limits, err error) {
	now = sandbox.Limits{
		CPUs: cmp.Or(change.CPUs, was.CPUs), Memory: cmp.Or(change.Memory, was.Memory), PIDs: cmp.Or(change.PIDs, was.PIDs),
		Tmp: cmp.Or(change.Tmp, was.Tmp), Shm: cmp.Or(change.Shm, was.Shm), Disk: cmp.Or(change.Disk, was.Disk), Inodes: cmp.Or(change.Inodes, was.Inodes),
		NoFile: cmp.Or(change.NoFile, was.NoFile), FileSize: cmp.Or(change.FileSize, was.FileSize),
	}
	if !running && change.Tmp == 0 {
		now.Tmp = min(now.Tmp, now.Memory/2)
	}
	if !running && change.Shm == 0 { // it follows the memory
		now.Shm = 0
		now.Shm = now.WithDefaults().Shm
	}
	if was.FileSize == was.Disk && change.FileSize == 0 && (now.Disk > was.Disk || !running) { // the default
		now.FileSize = now.Disk
	}
	if running {
		if err := fitsContainer(was, now, change); err != nil {
			return now, err
		}
	}
	return now, checkLimits(now)
}

// fitsContainer refuses what a container can't change while it runs.
func fitsContainer(was, now, change sandbox.Limits) error {
	for _, fixed := range []struct {
		name     string
		was, now int64
	}{{"tmp", was.Tmp, now.Tmp}, {"shm_size", was.Shm, now.Shm}, {"nofile", was.NoFile, now.NoFile}, {"file_bytes", was.FileSize, cmp.Or(change.FileSize, was.FileSize)}} {
		if fixed.was != fixed.now {
			return tool.Errorf(tool.Conflict, "%s can't change while the session has a container; stop the session first, then update it", fixed.name).In(fixed.name)
		}
	}
	if files := was.InMemory(); now.Memory < was.Memory && now.Memory/8*7 < files {
		return tool.Errorf(tool.Conflict, "memory can't become %s while the session has a container, whose files in memory (/tmp, /dev/shm, the home) may take %s; stop the session first, then update it",
			units.BytesSize(float64(now.Memory)), units.BytesSize(float64(files))).In("memory")
	}
	return nil
}

// resize changes a running sandbox, and reads back what it enforces.
func (l *local) resize(ctx context.Context, sb sandbox.Sandbox, was, now sandbox.Limits) error {
	r, ok := sandbox.As[sandbox.Resizer](sb)
	if !ok {
		return tool.Errorf(tool.Unsupported, "the limits of running programs can't change on this backend; stop the session first, then update it")
	}
	if gauger, ok := sandbox.As[sandbox.Gauger](sb); ok && now.Memory < was.Memory {
		if used, err := gauger.Gauge(ctx); err == nil && used.Memory > now.Memory {
			return tool.Errorf(tool.Conflict, "memory can't become %s: the session's programs and files in memory take %s now; end some, or stop the session first",
				units.BytesSize(float64(now.Memory)), units.BytesSize(float64(used.Memory))).In("memory")
		}
	}
	held := enforced(ctx, sb)
	if err := r.Resize(ctx, now); err != nil {
		return toolerr.Of(err)
	}
	for name := range held {
		if !enforced(ctx, sb)[name] {
			_ = r.Resize(context.WithoutCancel(ctx), was)
			return tool.Errorf(tool.Unavailable, "%s was not taken over by this host; the limits are as they were", name).In(name)
		}
	}
	return nil
}

// enforced returns the names of the container's limits that hold.
func enforced(ctx context.Context, sb sandbox.Sandbox) map[string]bool {
	out := map[string]bool{}
	info, err := sb.Info(ctx)
	for _, l := range info.Limits {
		if err == nil && l.Enforced && slices.Contains([]string{"cpus", "memory", "pids"}, l.Name) {
			out[l.Name] = true
		}
	}
	return out
}
