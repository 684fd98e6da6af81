package wisbox

import (
	"context"
	"errors"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

var errReset = tool.Errorf(tool.Closed, "the session was reset during the call")

// Reset empties the session: calls under way end, programs and what interpreters
// keep are gone, and the next call starts from a new workspace with the mounts
// copied again. The snapshots and the log stay. All handles on the session see
// that. After an error Reset may be called again.
func (s *Session) Reset(ctx context.Context) error {
	ctx, done, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = recorded(ctx, s, Event{Tool: "reset"}, func(ctx context.Context) (struct{}, *tool.Result, error) {
		return struct{}{}, &tool.Result{}, s.replace(ctx, func() (*vfs.FS, error) { return s.host.reset(ctx) })
	})
	return err
}

// replace ends the calls under way, keeps others waiting, and works with the
// files that renew gives.
func (w *work) replace(ctx context.Context, renew func() (*vfs.FS, error)) error {
	w.gate.RLock()
	w.stop(errReset)
	w.gate.RUnlock()
	w.gate.Lock()
	defer w.gate.Unlock()
	w.life, w.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	files, err := renew()
	if files != nil {
		err = errors.Join(err, w.vfs.Close())
		w.vfs = files
	}
	return err
}

// reset implements host. What can fail without harm comes first: up to the new
// workspace, a failure leaves the session as it was, but for its programs.
func (l *local) reset(ctx context.Context) (*vfs.FS, error) {
	if err := l.box.close(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(l.dir.Reset(ctx), removeLisp(l.dir)); err != nil {
		return nil, err
	}
	files, err := newFiles(l.dir, l.opts)
	if err != nil {
		return nil, err
	}
	old := l.services
	fresh, err := l.newServices(files)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	l.services = fresh
	l.set, err = l.profile(l.opts.Profile)
	return files, errors.Join(err, old.close(), l.m.copyMounts(ctx, l.dir, &l.opts))
}

// reset implements host: the holder does it, and what this process has open is
// the old workspace.
func (r *remote) reset(ctx context.Context) (*vfs.FS, error) {
	if err := r.holder.ask(ctx, request{Op: "reset"}, &struct{}{}); err != nil {
		return nil, err
	}
	if err := errors.Join(r.closeStore(), r.dir.Remake(ctx)); err != nil {
		return nil, err
	}
	return newFiles(r.dir, r.opts)
}

// store implements host. A holder may use the same snapshots: the store's own
// lock keeps the two apart.
func (r *remote) store() (*snapshot.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapshots != nil {
		return r.snapshots, nil
	}
	var err error
	r.snapshots, err = newSnapshots(r.dir, r.opts, nil)
	return r.snapshots, err
}

func (r *remote) closeStore() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapshots == nil {
		return nil
	}
	store := r.snapshots
	r.snapshots = nil
	return store.Close()
}

// store implements host.
func (l *local) store() (*snapshot.Store, error) { return l.snapshots, nil }

// quiesce pauses the session's programs, if any run and the host can do it. Where
// this process has no sandbox another one may have.
func (l *local) quiesce(ctx context.Context) (resume func(), still bool, err error) {
	sb, err := l.box.peek(ctx)
	if err != nil {
		return nil, false, err
	}
	p, ok := sb.(sandbox.Pauser)
	if !ok {
		return func() {}, false, nil
	}
	resume, err = p.Pause(ctx)
	if errors.Is(err, sandbox.ErrUnsupported) {
		l.m.log.Info("programs go on during a snapshot", "cause", err)
		return func() {}, false, nil
	}
	return resume, true, toolerr.Of(err)
}

// activity is the processor time that the session's programs have used, by
// whatever process they were started.
func (l *local) activity(ctx context.Context) (int64, error) {
	sb, err := l.box.peek(ctx)
	if err != nil {
		return 0, err
	}
	m, ok := sb.(sandbox.Meter)
	if !ok {
		return 0, sandbox.ErrUnsupported
	}
	used, err := m.CPUTime(ctx)
	return int64(used), err
}
