package wisbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Pause freezes all programs of the session until [Session.Resume]: they keep their memory but use
// no processor time, and their time limits don't run. Meanwhile, calls that run or steer programs
// fail at once with unavailable; files can be read and changed, also by the tools. Running calls
// wait. The pause belongs to the session, not to this process: it outlives the process, and a kept
// session's idle time doesn't run. The session's services continue. Pausing a paused session does
// nothing. If the host can't pause, the error is unsupported.
func (s *Session) Pause(ctx context.Context) error {
	_, err := perform[struct{}](ctx, s, pauseOp{}, hold.Streams{})
	return err
}

// Resumed is the result of [Session.Resume].
type Resumed struct {
	// Lost reports whether the paused container and its programs are gone, for instance after a
	// reboot. The session gets a new container over the same files.
	Lost bool `json:"lost"`
}

// Resume thaws the programs of a paused session. It does nothing to a session that isn't paused.
func (s *Session) Resume(ctx context.Context) (Resumed, error) {
	return perform[Resumed](ctx, s, resumeOp{}, hold.Streams{})
}

// ResumeFromFiles ends a pause without the frozen programs: they end as in [Manager.Stop], and the
// session gets a new container over its present files. It does nothing to a session that isn't
// paused.
func (s *Session) ResumeFromFiles(ctx context.Context) error {
	_, err := perform[Resumed](ctx, s, resumeOp{FromFiles: true}, hold.Streams{})
	return err
}

// pauseOp freezes the session's programs.
type pauseOp struct{}

func (o pauseOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return struct{}{}, journal.Outcome{}, l.pause(ctx)
}

// resumeOp thaws or ends them.
type resumeOp struct {
	FromFiles bool `json:"from_files,omitempty"`
}

func (o resumeOp) event() Event {
	if o.FromFiles {
		return Event{Tool: "resume", Args: map[string]any{"from_files": true}}
	}
	return Event{Tool: "resume"}
}

func (o resumeOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	out, err := l.resume(ctx, o.FromFiles)
	return out, journal.Outcome{}, err
}

// awake returns an error if a session is paused.
func awake(dir *overlay.Dir) error {
	if dir.Current().Status != overlay.StatePaused {
		return nil
	}
	return tool.Errorf(tool.Unavailable, "session %s is paused: its programs are frozen, and none can be run or controlled; nothing of the call was done; "+
		"files can be read and changed; `wisbox resume %s` lets it go on", dir.ID(), dir.ID())
}

func (l *local) awake() error { return awake(l.dir) }

// pause records the pause before it begins, so that later processes find it.
func (l *local) pause(ctx context.Context) error {
	unlock, err := l.dir.LockPause(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if l.awake() != nil {
		return nil
	}
	return l.box.Stand(ctx, l.openSandbox, func(there bool) error {
		return l.dir.Update(ctx, func(s *overlay.State) error { s.Paused(overlay.Now(), there); return nil })
	}, func() { l.unpause(ctx) })
}

// unpause removes the record of a failed pause, unless the container is frozen all the same or
// can't be checked: only a paused session can be resumed.
func (l *local) unpause(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnTime)
	defer cancel()
	if state, err := l.containerState(ctx); err != nil || state == "paused" {
		l.m.log.Warn("a pause that failed stays", "session", l.dir.ID(), "container", state, "error", err)
		return
	}
	err := l.dir.Update(ctx, func(s *overlay.State) error {
		if s.Pause != nil {
			s.Resumed(s.Pause.Since)
		}
		return nil
	})
	if err != nil {
		l.m.log.Warn("take a pause back that failed", "session", l.dir.ID(), "error", err)
	}
}

// openSandbox opens the sandbox and thaws a frozen container. The caller must hold pause.lock. If
// thawing fails, the error is unavailable, and the container stays.
func (l *local) openSandbox(ctx context.Context) (sandbox.Sandbox, error) {
	spec := l.spec(ctx)
	var opening atomic.Bool // only during the open: afterwards the lock is free
	opening.Store(true)
	defer opening.Store(false)
	spec.Wake = func(ctx context.Context, goOn func() error) error {
		if !opening.Load() {
			return l.wake(ctx, goOn)
		}
		if err := goOn(); err != nil {
			return tool.Errorf(tool.Unavailable, "the container can't be resumed; call again, or see `wisbox doctor`").Because(errors.New(err.Error()))
		}
		return nil
	}
	return l.m.backend.Open(ctx, spec)
}

func (l *local) resume(ctx context.Context, fromFiles bool) (out Resumed, err error) {
	was, there, err := l.goOn(ctx, fromFiles)
	if err != nil {
		return out, err
	}
	if was != nil && was.Container && !there {
		out.Lost = true
		l.behind.Store(false)
		_, err = l.box.Get(ctx)
		return out, err
	}
	return out, l.known()
}

// goOnTime bounds a resume. It doesn't end with its caller, because a half done resume would leave
// the session neither paused nor running.
var goOnTime = patience.For(60 * time.Second)

// goOn thaws paused programs, and reports whether there are any. With fromFiles it ends them first.
func (l *local) goOn(ctx context.Context, fromFiles bool) (was *overlay.Pause, there bool, err error) {
	unlock, err := l.dir.LockPause(ctx)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	before := l.dir.Current()
	if before.Pause == nil {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnTime)
	defer cancel()
	if fromFiles {
		if err := l.box.Forget(ctx, func(ctx context.Context) error { return toolerr.Of(l.m.backend.Remove(ctx, l.dir.ID())) }); err != nil {
			return nil, false, err
		}
	}
	there, err = l.box.GoOn(ctx, l.openSandbox, func() error {
		return l.dir.Update(ctx, func(s *overlay.State) error { s.Resumed(overlay.Now()); return nil })
	}, func(failed error) (bool, error) { return l.staysPaused(ctx, before, failed) })
	return before.Pause, there, err
}

// staysPaused determines the state of a session after a failed thaw: if its container runs, the
// session continues; if the container isn't frozen, it is lost; otherwise the session is paused as
// before.
func (l *local) staysPaused(ctx context.Context, before overlay.State, failed error) (there bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnTime)
	defer cancel()
	state, err := l.containerState(ctx)
	if err == nil && state != "paused" {
		l.m.log.Warn("resume a session", "session", l.dir.ID(), "container", state, "error", failed)
		return state == "running", nil
	}
	err = l.dir.Update(ctx, func(s *overlay.State) error {
		s.Status, s.Pause, s.Stood = before.Status, before.Pause, before.Stood
		return nil
	})
	if err != nil {
		l.m.log.Warn("keep a session paused that could not be resumed", "session", l.dir.ID(), "error", err)
	}
	return false, failed
}

// stayPaused is for the holder of a session that an earlier holder may have left paused; it reports
// whether the session is paused. The holder takes the programs over when they are thawed, because
// they can't be asked now. It pauses programs that are running because the earlier holder was
// killed between the record and the pause.
func (l *local) stayPaused(ctx context.Context) bool {
	if l.awake() == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, reclaimTime)
	defer cancel()
	unlock, err := l.dir.LockPause(ctx)
	if err == nil {
		defer unlock()
	}
	pause := l.dir.Current().Pause
	if pause == nil {
		return false // it was resumed meanwhile
	}
	l.behind.Store(pause.Container)
	if err == nil && pause.Container {
		err = l.freeze(ctx)
	}
	if err != nil {
		l.m.log.Warn("pause the programs of a paused session", "session", l.dir.ID(), "error", err)
	}
	return true
}

// freeze pauses the running container of a session whose record says that it is paused.
func (l *local) freeze(ctx context.Context) error {
	state, err := l.containerState(ctx)
	if err != nil || state != "running" {
		return err
	}
	return l.box.Stand(ctx, l.openSandbox, func(bool) error { return nil }, func() {})
}

// known takes over the processes that an earlier holder left in a paused session, once the session
// is resumed, by any process; until then it returns an error.
func (l *local) known() error {
	switch {
	case !l.behind.Load():
		return nil
	case l.awake() != nil:
		return errBehind
	}
	_ = l.taking.Lock(context.Background()) // others wait for the takeover
	defer l.taking.Unlock()
	if l.behind.Load() {
		l.reclaim(context.Background())
		l.behind.Store(false)
	}
	return nil
}

// ending is called at the end of this holder, before it waits for its calls.
func (l *local) ending(cause error) {
	if err := l.letGo(context.Background(), !errors.Is(cause, errExpired)); err != nil {
		l.m.log.Warn("give up the container of a paused session", "session", l.dir.ID(), "error", err)
	}
}

func (l *local) letGo(ctx context.Context, keep bool) error {
	return l.box.LetGo(func(sb sandbox.Sandbox) error {
		if !keep {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnTime)
			defer cancel()
			return sb.Close(ctx)
		}
		l.leave.Store(l.holds.Load())
		return sb.Detach()
	})
}

func (l *local) steady(ctx context.Context) (unlock func(), err error) {
	if unlock, err = l.dir.LockPause(ctx); err != nil {
		return nil, err
	}
	if err := l.awake(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// containerState returns Podman's state of the session's container, such as "running" or "paused";
// "" if there is none.
func (l *local) containerState(ctx context.Context) (string, error) {
	all, err := l.m.backend.List(ctx)
	for _, info := range all {
		if info.ID == l.dir.ID() {
			return info.State, nil
		}
	}
	return "", toolerr.Of(err)
}

// leaves reports whether this process should leave the programs of its paused session to the next
// holder.
func (l *local) leaves(ctx context.Context) bool {
	if l.leave.Load() {
		return true
	}
	if l.awake() == nil {
		return false
	}
	sb, err := l.box.Peek(ctx)
	return l.behind.Load() || err != nil || sb != nil
}

// stands reports whether programs known to this process are frozen.
func (l *local) stands() bool {
	ctx, cancel := context.WithTimeout(context.Background(), peekTime)
	defer cancel()
	if l.awake() == nil {
		return false
	}
	sb, err := l.box.Peek(ctx)
	return err != nil || sb != nil
}

// quiesce freezes a session's programs until resume. A client that opens the session meanwhile
// doesn't thaw them.
func quiesce(ctx context.Context, dir *overlay.Dir, b *box.Box) (resume func(), still bool, err error) {
	unlock, err := dir.LockPause(ctx)
	if err != nil {
		return nil, false, err
	}
	if awake(dir) != nil {
		return unlock, true, nil
	}
	goOn, still, err := b.Pause(ctx)
	if err != nil {
		unlock()
		return nil, false, err
	}
	return func() { goOn(); unlock() }, still, nil
}

// wake thaws the session's programs, once no living process keeps them frozen.
func (l *local) wake(ctx context.Context, goOn func() error) error {
	unlock, err := l.dir.LockPause(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.awake(); err != nil {
		return err
	}
	return goOn()
}
