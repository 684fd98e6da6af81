package overlay

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/tool/answer"
)

// SweepOptions are options of a sweep; nil works.
type SweepOptions struct {
	// DryRun only reports the sessions that a sweep would remove.
	DryRun bool
	// Now is the clock by which kept sessions expire; nil is [Now].
	Now func() Stamp
	// Before is called for each session that is removed, as in [Store.RemoveWith].
	Before func(ctx context.Context, id string) error
}

// Swept is a session that a sweep removed, and the reason.
type Swept struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	// Problem is the reason why it could not be removed, "" if it was.
	Problem string `json:"problem,omitempty"`
}

// Sweep removes the sessions that nobody has open and that need not stay: ephemeral ones, those whose creator was
// killed before they were ready, and kept ones whose time is over. It also completes interrupted removals. Kept
// sessions lose only the leftovers of killed clients outside of their workspace, and lost ones stay for a person to
// remove. Several sweeps may run at once.
//
// The error is the reason why the sweep could not continue; a failure for one session is its Problem.
func (s *Store) Sweep(ctx context.Context, opts *SweepOptions) ([]Swept, error) {
	if opts == nil {
		opts = &SweepOptions{}
	}
	w := &sweep{store: s, SweepOptions: *opts}
	if w.Now == nil {
		w.Now = Now
	}
	err := w.run(ctx)
	return w.swept, err
}

type sweep struct {
	SweepOptions
	store *Store
	swept []Swept
}

func (w *sweep) run(ctx context.Context) error {
	ids, err := names(w.store.sessions)
	if err != nil {
		return ioError(err, "list the sessions")
	}
	var unrecorded []string
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.session(ctx, id) {
			unrecorded = append(unrecorded, id)
		}
	}
	if len(unrecorded) > 0 {
		w.halfMade(ctx, unrecorded)
	}
	return w.trash(ctx)
}

// session checks one session; if it has no record it may be incomplete.
func (w *sweep) session(ctx context.Context, id string) (halfMade bool) {
	c, err := w.store.tryClaim(id)
	if err != nil { // in use, gone, or unreadable
		return false
	}
	if c.dir == nil {
		c.release()
		return false
	}
	state, err := loadState(c.dir)
	if err != nil {
		defer c.release()
		return isHalfMade(c.dir)
	}
	reason := w.reason(state)
	if reason == "" {
		if !w.DryRun {
			clearLeftovers(c.dir)
		}
		c.release()
		return false
	}
	w.remove(ctx, c, reason)
	return false
}

// reason returns the reason to remove a session that nobody has open, "" if it stays.
func (w *sweep) reason(state State) string {
	switch {
	case state.Status == StateClosing:
		return "its removal was interrupted"
	case !state.Kept:
		return "ephemeral, and nobody has it open"
	case state.Status == StateOpening:
		return "its opening was interrupted"
	}
	reason, _ := state.Expired(w.Now())
	return reason
}

// remove removes a claimed session and ends the claim.
func (w *sweep) remove(ctx context.Context, c *claim, reason string) {
	if w.DryRun {
		c.release()
		w.report(c.id, reason, nil)
		return
	}
	entry, err := w.store.bury(ctx, c, w.Before)
	if err == nil {
		err = ioError(w.store.shred(ctx, entry), "delete the session's files")
	}
	w.report(c.id, reason, err)
}

func (w *sweep) report(id, reason string, err error) {
	swept := Swept{ID: id, Reason: reason}
	if err != nil {
		swept.Problem = answer.AsError(err).Message
	}
	w.swept = append(w.swept, swept)
}

// halfMade removes directories whose creator was killed before it wrote a record. Creators hold root.lock shared: while
// halfMade holds it exclusively, none is at work.
func (w *sweep) halfMade(ctx context.Context, ids []string) {
	lock := flock.New(filepath.Join(w.store.path, rootLock))
	if ok, err := lock.TryLock(); !ok || err != nil {
		return // the next sweep does it
	}
	defer lock.Unlock()
	for _, id := range ids {
		c, err := w.store.tryClaim(id)
		if err != nil {
			continue
		}
		if c.dir == nil || !isHalfMade(c.dir) {
			c.release()
			continue
		}
		w.remove(ctx, c, "its making was interrupted")
	}
}

func (w *sweep) trash(ctx context.Context) error {
	entries, err := names(w.store.trash)
	if err != nil {
		return ioError(err, "list the trash")
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := error(nil)
		if !w.DryRun {
			err = ioError(w.store.shred(ctx, entry), "delete the session's files")
		}
		if !errors.Is(err, context.Canceled) {
			w.report(trashedID(entry), "left in the trash", err)
		}
	}
	return nil
}
