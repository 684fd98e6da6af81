package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// local does a session's work in this process.
type local struct {
	m    *Manager
	dir  *overlay.Dir
	opts SessionOptions
	box  *box
	disk *diskWatch

	secrets *vault

	*services
	set *tool.Set

	reserved atomic.Int64 // when the host last had free space, since started

	lost   bool        // a holder before this one was killed
	unsaid atomic.Bool // and no result has said so yet
}

func (l *local) tools() *tool.Set { return l.set }
func (l *local) records() bool    { return true }

func (l *local) call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	if err := l.dir.Check(ctx); err != nil {
		return nil, err
	}
	if growing[name] {
		if err := errors.Join(l.reserve(ctx), l.dir.Room(ctx)); err != nil {
			return nil, err
		}
	}
	res, err := l.set.Call(ctx, name, raw)
	if err != nil {
		return nil, err
	}
	return l.secrets.cleanResult(l.sayLoss(res)), nil
}

// setSecrets keeps names and files with the session, values in memory.
func (l *local) setSecrets(ctx context.Context, all map[string]Secret) error {
	l.secrets.set(all)
	err := l.updateSettings(ctx, func(o *SessionOptions) {
		if o.Secrets == nil {
			o.Secrets = map[string]Secret{}
		}
		maps.Copy(o.Secrets, all)
	})
	return errors.Join(err, l.box.readyBy(ctx, l.secrets.hand))
}

// updateSettings changes what session.json says of the session's options.
func (l *local) updateSettings(ctx context.Context, change func(*SessionOptions)) error {
	return l.dir.Update(ctx, func(s *overlay.State) error {
		var o SessionOptions
		if err := json.Unmarshal(s.Settings, &o); err != nil {
			return err
		}
		change(&o)
		settings, err := json.Marshal(o)
		s.Settings = settings
		return err
	})
}

func (l *local) clean(event Event, err error) (Event, error) {
	if r := l.secrets.redactor(); r != nil {
		event.redact(r)
	}
	return event, l.secrets.cleanError(err)
}

func (l *local) run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	if err := l.dir.Check(ctx); err != nil {
		return sandbox.Result{}, err
	}
	var out sandbox.Result
	_, err := callOf(ctx).change(ctx, byRun, func(ctx context.Context) (*tool.Result, error) {
		runner, err := l.runner(ctx)
		if err == nil {
			out, err = runner.Run(ctx, cmd)
		}
		return &tool.Result{Failed: out.Status != sandbox.StatusExited}, err
	})
	return out, err
}

func (l *local) start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	if err := l.dir.Check(ctx); err != nil {
		return nil, err
	}
	var p sandbox.Process
	_, err := callOf(ctx).change(ctx, byLasting, func(ctx context.Context) (_ *tool.Result, err error) {
		runner, err := l.runner(ctx)
		if err == nil {
			p, err = runner.Start(ctx, cmd)
		}
		return &tool.Result{}, err
	})
	return p, err
}

// runner is how the tools reach the sandbox, once the call has looked whether
// the workspace is still there (so that a deleted one is said in our words and
// not in the runtime's). A host or session that is full starts no program that
// could fill it more.
func (l *local) runner(ctx context.Context) (sandbox.Runner, error) {
	if err := l.reserve(ctx); err != nil {
		return nil, err
	}
	if err := l.dir.Room(ctx); err != nil {
		return nil, err
	}
	l.disk.begin()
	if r := l.secrets.redactor(); r != nil {
		return redacted{l.box, r}, nil
	}
	return l.box, nil
}

// reserveEvery is how long an answer about the host's free space is good for: a
// disk doesn't fill in that time by more than the reserve.
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

// started is what monotonic times are told from.
var started = time.Now()

// makeSandbox opens the session's running sandbox or makes it.
func (l *local) makeSandbox(ctx context.Context) (sandbox.Sandbox, error) {
	l.m.sweepSandboxes()
	spec := l.spec()
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

// makeTries is how often a sandbox that another process makes, or ends, at the
// same time is looked for again.
const makeTries = 3

func (l *local) spec() sandbox.Spec {
	spec := sandbox.Spec{
		ID: l.dir.ID(), Image: l.opts.Image, Workspace: l.dir.WorkspacePath(), Limits: l.opts.Limits,
		Env: l.opts.Env, Strict: l.opts.Strict, Isolation: l.opts.Isolation, Seccomp: l.opts.Seccomp,
	}
	if user := l.dir.State().User; l.opts.UserNS == usernsAuto && user != nil {
		spec.Owner = sandbox.Owner{UID: user.UID, GID: user.GID}
	}
	return spec
}

func (l *local) inspect(ctx context.Context) (*Inspection, error) {
	out := about(l.dir, l.opts)
	if l.lost {
		out.Gaps = append(out.Gaps, lossText)
	}
	if _, err := l.secrets.values(); err != nil {
		out.Gaps = append(out.Gaps, tool.AsError(firstOf(err)).Message)
	}
	sb, done, err := l.running(ctx)
	if err != nil { // what is known of the session is worth telling all the same
		out.Gaps = append(out.Gaps, "the container can't be asked: "+tool.AsError(err).Message)
		return out, nil
	}
	if sb == nil {
		return out, nil
	}
	defer done()
	info, err := sb.Info(ctx)
	if err != nil {
		out.Gaps = append(out.Gaps, "the container can't be asked: "+tool.AsError(toolerr.Of(err)).Message)
		return out, nil
	}
	info.Limits = withDisk(info.Limits, diskLimits(l.dir))
	out.Limits = info.Limits
	out.Sandbox, out.Gaps = &info, append(out.Gaps, info.Gaps...)
	return out, nil
}

// about is what a session's directory tells.
func about(dir *overlay.Dir, o SessionOptions) *Inspection {
	state := dir.State()
	return &Inspection{
		ID: dir.ID(), Kept: o.Kept, State: string(state.Status), Created: state.Created.At,
		Image: o.Image, Workspace: dir.WorkspacePath(),
		Limits: withDisk(o.Limits.Asked("nothing yet: the container comes with the first program"), diskLimits(dir)),
	}
}

// running gives the sandbox if one runs, this process's or another's.
func (l *local) running(ctx context.Context) (sandbox.Sandbox, func(), error) {
	sb, err := l.box.peek(ctx)
	if err != nil || sb != nil {
		return sb, func() {}, err
	}
	sb, err = l.m.backend.Open(ctx, l.spec())
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, toolerr.Of(err)
	}
	return sb, func() { _ = sb.Detach() }, nil
}

func (l *local) close(ctx context.Context, keep bool) error {
	l.disk.end()
	errs := []error{l.services.close()}
	if keep {
		errs = append(errs, l.box.detach(ctx))
	} else {
		errs = append(errs, l.box.close(ctx))
	}
	return errors.Join(errs...)
}

// newLocal makes the tools of a session over its files, and over the sandbox
// that a pooled one has already.
func (m *Manager) newLocal(item *pooled, opts SessionOptions, files *vfs.FS) (*local, error) {
	l := &local{m: m, dir: item.dir, opts: opts, box: item.box}
	if l.box == nil {
		l.box = newBox(l.makeSandbox, m.log)
	}
	l.secrets = newVault(l.dir.ID(), opts.Secrets)
	if len(opts.Secrets) > 0 {
		l.box.ready = l.secrets.hand
	}
	l.disk = &diskWatch{dir: l.dir, box: l.box}
	var err error
	if l.services, err = l.newServices(files); err != nil {
		return nil, err
	}
	l.set, err = l.profile(opts.Profile)
	return l, err
}
