package overlay

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/tool"
)

// SweepOptions are how a sweep goes; nil works.
type SweepOptions struct {
	// DryRun only reports what a sweep would remove.
	DryRun bool
	// Now is the clock by which kept sessions expire; nil is [Now].
	Now func() Stamp
	// Before is called for each session that goes, as in [Store.RemoveWith].
	Before func(ctx context.Context, id string) error
}

// Swept is a session that a sweep removed, and why.
type Swept struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	// Problem says why it could not be removed; "" where it was.
	Problem string `json:"problem,omitempty"`
}

// Sweep removes the sessions that nobody has open and that have no reason to
// stay: ephemeral ones, those that their maker was killed over, kept ones whose
// time is over; and it finishes removals that were interrupted. Kept sessions
// lose nothing but what killed clients left outside their workspace, and lost
// ones stay for a person to remove. Many sweeps may run at once.
//
// The error says why the sweep could not go on; what fails for one session is
// its Problem.
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

// session judges one session; it may be half made where it has no record.
func (w *sweep) session(ctx context.Context, id string) (halfMade bool) {
	c, err := w.store.tryClaim(id)
	if err != nil { // in use, gone, or not ours to read
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

// reason why a session goes that nobody has open; "" where it stays.
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

// remove ends a claimed session and the claim.
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
		swept.Problem = tool.AsError(err).Message
	}
	w.swept = append(w.swept, swept)
}

// halfMade removes directories whose maker was killed before there was a record.
// Makers that live share root.lock: with it alone, none is at work.
func (w *sweep) halfMade(ctx context.Context, ids []string) {
	lock := flock.New(filepath.Join(w.store.path, rootLock))
	if ok, err := lock.TryLock(); !ok || err != nil {
		return // the next sweep comes
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
