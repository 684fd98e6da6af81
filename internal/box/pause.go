package box

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Pause freezes the session's programs for a moment, if any run and the host can do it. If this
// process has no sandbox, another one may have it.
func (b *Box) Pause(ctx context.Context) (resume func(), still bool, err error) {
	sb, err := b.Peek(ctx)
	if err != nil {
		return nil, false, err
	}
	p, ok := sandbox.As[sandbox.Pauser](sb)
	if !ok {
		return func() {}, false, nil
	}
	err = p.Pause(ctx)
	if errors.Is(err, sandbox.ErrUnsupported) || errors.Is(err, sandbox.ErrLost) {
		b.opts.Log.Info("programs go on during a snapshot", "cause", err)
		return func() {}, false, nil
	}
	if err != nil {
		return nil, false, toolerr.Of(err)
	}
	b.still.begin()
	return sync.OnceFunc(func() { b.resume(ctx, p); b.still.end() }), true, nil
}

// resumeTime bounds the resuming of programs, whose caller may be gone.
var resumeTime = patience.For(30 * time.Second)

func (b *Box) resume(ctx context.Context, p sandbox.Pauser) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTime)
	defer cancel()
	if err := p.Resume(ctx); err != nil {
		b.opts.Log.Warn("resume a paused sandbox", "error", err)
	}
}

var errEnding = tool.Errorf(tool.Unavailable, "the session is being closed in this process, or by the process that holds it; nothing of the call was done; call again")

// Stand freezes the session's programs until GoOn. find is that of [Box.Adopt]. record records the
// pause before it begins, with whether there is a sandbox; none is created meanwhile. undo reverts
// that if the recording failed or programs couldn't be frozen. Both must not call the Box.
func (b *Box) Stand(ctx context.Context, find func(context.Context) (sandbox.Sandbox, error), record func(there bool) error, undo func()) error {
	if err := b.mu.Lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.ending {
		return errEnding
	}
	there, err := b.adopt(ctx, find)
	if err != nil {
		return err
	}
	p, ok := sandbox.As[sandbox.Pauser](b.cur)
	if there && !ok {
		return tool.Errorf(tool.Unsupported, "programs of this session can't be paused: its sandbox has no way to it")
	}
	b.still.begin() // until the record counts the time
	defer b.still.end()
	if err := record(there); err != nil {
		undo() // the record may have been written all the same
		return err
	}
	if !there {
		return nil
	}
	if err := p.Pause(context.WithoutCancel(ctx)); err != nil {
		undo()
		return toolerr.Of(err)
	}
	return nil
}

// GoOn thaws the programs, and reports whether there is a sandbox. It gives up a lost one. find is
// that of [Box.Adopt]. Before that, record records that the session isn't paused any more. failed is
// called with the error if programs can't go on, and returns the session's error. Both must not call
// the Box.
func (b *Box) GoOn(ctx context.Context, find func(context.Context) (sandbox.Sandbox, error), record func() error, failed func(error) (there bool, err error)) (there bool, err error) {
	if err := b.mu.Lock(ctx); err != nil {
		return false, err
	}
	defer b.mu.Unlock()
	if b.ending {
		return false, errEnding
	}
	b.still.begin() // the record doesn't count the duration of the thaw
	defer b.still.end()
	if err := record(); err != nil {
		return false, err
	}
	if there, err = b.goOn(ctx, find); err == nil {
		return there, nil
	}
	if there, err = failed(err); there && err == nil {
		if p, ok := sandbox.As[sandbox.Pauser](b.cur); ok {
			b.resume(ctx, p) // running programs have their time limits again
		}
	}
	return there, err
}

// goOn is like GoOn with mu held.
func (b *Box) goOn(ctx context.Context, find func(context.Context) (sandbox.Sandbox, error)) (there bool, err error) {
	if b.cur == nil { // the next process that opens it thaws it
		return b.adopt(ctx, find)
	}
	p, ok := sandbox.As[sandbox.Pauser](b.cur)
	if !ok {
		return true, nil
	}
	err = p.Resume(ctx)
	if errors.Is(err, sandbox.ErrLost) {
		b.opts.Log.Info("the sandbox was lost while it was paused", "error", err)
		return false, toolerr.Of(b.left().Close(ctx))
	}
	return err == nil, toolerr.Of(err)
}

// Forget removes a frozen sandbox with all of its programs; remove removes one that this Box hasn't
// opened. The next program gets another sandbox. The session's record is left as it is.
func (b *Box) Forget(ctx context.Context, remove func(context.Context) error) error {
	if err := b.mu.Lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.ending {
		return errEnding
	}
	if b.cur == nil {
		return remove(ctx)
	}
	return toolerr.Of(b.left().Close(ctx))
}

// LetGo gives up a frozen sandbox by calling how, since it is impossible to wait for its calls. From
// then on they are cancelled, and no pause begins. A sandbox that isn't frozen is left as it is.
// LetGo doesn't end with a caller: calls that hold the Box are cancelled or bounded.
func (b *Box) LetGo(how func(sandbox.Sandbox) error) error {
	if err := b.mu.Lock(context.Background()); err != nil {
		return err
	}
	defer b.mu.Unlock()
	b.ending = true
	if b.cur == nil || b.opts.Awake() == nil {
		return nil
	}
	b.letGo.Store(true)
	return toolerr.Of(how(b.left()))
}

// stood returns the total time for which programs were frozen.
func (b *Box) stood() time.Duration { return b.still.lasted() + b.opts.Stood() }
