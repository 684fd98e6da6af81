package wisbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Pause has all programs of the session stand still, until [Session.Resume]: they keep
// their memory and use no processor, and their time limits don't run. Calls that run or
// steer programs are unavailable meanwhile, at once; files can be read and changed, by the
// tools too. Calls under way wait. The pause is the session's, not this process's: it
// outlives the process, and the idle time of a kept session doesn't run. Its services go
// on. Pausing a paused session does nothing. Where the host can't pause it is unsupported.
func (s *Session) Pause(ctx context.Context) error {
	_, err := perform[struct{}](ctx, s, pauseOp{}, hold.Streams{})
	return err
}

// Resumed says what [Session.Resume] found.
type Resumed struct {
	// Lost says that the container that was paused is gone, as after a reboot, with its
	// programs. The session has another one, over the same files.
	Lost bool `json:"lost"`
}

// Resume lets the programs of a paused session go on; one that isn't paused stays as it is.
func (s *Session) Resume(ctx context.Context) (Resumed, error) {
	return perform[Resumed](ctx, s, resumeOp{}, hold.Streams{})
}

// pauseOp has the session's programs stand still.
type pauseOp struct{}

func (o pauseOp) event() Event { return Event{Tool: "pause"} }

func (o pauseOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	return struct{}{}, journal.Outcome{}, l.pause(ctx)
}

// resumeOp lets them go on.
type resumeOp struct{}

func (o resumeOp) event() Event { return Event{Tool: "resume"} }

func (o resumeOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	out, err := l.resume(ctx)
	return out, journal.Outcome{}, err
}

// awake is an error where a session is paused.
func awake(dir *overlay.Dir) error {
	if dir.Current().Status != overlay.StatePaused {
		return nil
	}
	return tool.Errorf(tool.Unavailable, "session %s is paused: its programs stand still, and none can be run or steered; nothing of the call was done; "+
		"files can be read and changed; `wisbox session resume %s` lets it go on", dir.ID(), dir.ID())
}

func (l *local) awake() error { return awake(l.dir) }

// pause writes the pause down before it begins: a process after this one finds it.
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

// unpause takes the record of a pause back that failed, unless the container stands still
// all the same, or nobody can look: only a session that is paused can be resumed.
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

// openSandbox is for who holds pause.lock: a container that stands still goes on. One
// that can't is unavailable, and stays.
func (l *local) openSandbox(ctx context.Context) (sandbox.Sandbox, error) {
	spec := l.spec(ctx)
	var opening atomic.Bool // and not afterwards, when the lock is free
	opening.Store(true)
	defer opening.Store(false)
	spec.Wake = func(ctx context.Context, goOn func() error) error {
		if !opening.Load() {
			return l.wake(ctx, goOn)
		}
		if err := goOn(); err != nil {
			return tool.Errorf(tool.Unavailable, "the container can't go on; call again, or see `wisbox doctor`").Because(errors.New(err.Error()))
		}
		return nil
	}
	return l.m.backend.Open(ctx, spec)
}

func (l *local) resume(ctx context.Context) (out Resumed, err error) {
	was, there, err := l.goOn(ctx)
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

// goOnTime bounds a resume, which doesn't end with its caller: half done it would leave a
// session that is neither.
const goOnTime = 60 * time.Second

// goOn lets the programs go on, where they were paused, and reports whether there are any.
func (l *local) goOn(ctx context.Context) (was *overlay.Pause, there bool, err error) {
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
	there, err = l.box.GoOn(ctx, l.openSandbox, func() error {
		return l.dir.Update(ctx, func(s *overlay.State) error { s.Resumed(overlay.Now()); return nil })
	}, func(failed error) (bool, error) { return l.staysPaused(ctx, before, failed) })
	return before.Pause, there, err
}

// staysPaused finds out what became of a session whose programs could not be let go on: a
// container that runs all the same has gone on, one that doesn't stand still is lost, and
// else the session is paused as before.
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

// stayPaused is for the holder of a session that a holder before this one may have left
// paused, and reports whether it is. Its programs are taken over when they go on, for they
// can't be asked now. Those that run nevertheless, because that holder was killed between
// the record and the pause, are paused now.
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

// freeze pauses the container of a session that is paused by its record, if it runs.
func (l *local) freeze(ctx context.Context) error {
	state, err := l.containerState(ctx)
	if err != nil || state != "running" {
		return err
	}
	return l.box.Stand(ctx, l.openSandbox, func(bool) error { return nil }, func() {})
}

// known takes over the processes that a holder before this one has left in a paused
// session, once that goes on, whoever has resumed it; before that it is an error.
func (l *local) known() error {
	switch {
	case !l.behind.Load():
		return nil
	case l.awake() != nil:
		return errBehind
	}
	_ = l.taking.Lock(context.Background()) // others wait for what is taken over
	defer l.taking.Unlock()
	if l.behind.Load() {
		l.reclaim(context.Background())
		l.behind.Store(false)
	}
	return nil
}

// ending is for the end of this holder, before it waits for its calls.
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

// containerState is how Podman has the session's container, as "running" and "paused"; ""
// where there is none.
func (l *local) containerState(ctx context.Context) (string, error) {
	all, err := l.m.backend.List(ctx)
	for _, info := range all {
		if info.ID == l.dir.ID() {
			return info.State, nil
		}
	}
	return "", toolerr.Of(err)
}

// leaves reports whether the programs of a paused session, which this process holds, are
// to be found by the next holder.
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

// stands reports whether programs stand still that this process knows.
func (l *local) stands() bool {
	ctx, cancel := context.WithTimeout(context.Background(), peekTime)
	defer cancel()
	if l.awake() == nil {
		return false
	}
	sb, err := l.box.Peek(ctx)
	return err != nil || sb != nil
}

// quiesce has a session's programs stand still until resume. Whoever opens the session
// meanwhile doesn't wake them.
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

// wake lets the session's programs go on, once no living process has them stand still.
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
