package wisbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// A step is a snapshot from before a call that changed the workspace. It has the
// call's id. Steps form a stack: Undo takes the last ones away.
const (
	maxSteps   = 256 // the oldest go when there are twice as many
	pruneEvery = 32  // calls between two looks at how many there are
)

// stepTime bounds what is done after a call whose caller may be gone.
const stepTime = 2 * time.Minute

// stepped is change with a step before it.
func (c *call) stepped(ctx context.Context, how effect, do func(context.Context) (*tool.Result, error)) (*tool.Result, error) {
	free, err := c.s.takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	store, err := c.s.host.store()
	if err == nil {
		err = c.begin(ctx, store)
	}
	if err != nil {
		return nil, err
	}
	res, err := do(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	if c.s.opts.RollbackOnFailure && (err != nil || res.Failed) {
		return c.rollBack(ctx, store, res, err)
	}
	c.end(ctx, store, how)
	return res, err
}

// takeTurn lets calls that may be rolled back change the workspace one after the
// other; others don't wait.
func (s *Session) takeTurn(ctx context.Context) (free func(), err error) {
	if !s.opts.RollbackOnFailure {
		return func() {}, nil
	}
	select {
	case <-s.turn:
		return func() { s.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, tool.AsError(ctx.Err())
	}
}

// begin makes the step, once a call: a tool may change the workspace in several
// parts.
func (c *call) begin(ctx context.Context, store *snapshot.Store) error {
	if c.step != "" {
		return nil
	}
	info, err := store.Create(ctx, &snapshot.CreateOptions{Label: "before " + c.tool, Call: c.id})
	if err != nil {
		e := tool.AsError(err)
		return tool.Errorf(e.Kind, "the step before this call can't be made, so nothing was done: %s", e.Message).Because(err)
	}
	c.step = info.ID
	if c.s.steps.Add(1)%pruneEvery == 0 {
		c.s.pruneSteps(ctx, store)
	}
	return nil
}

// end takes down what the call has changed. A call that has changed nothing
// leaves no step.
func (c *call) end(ctx context.Context, store *snapshot.Store, how effect) {
	if how == byLasting {
		return
	}
	if how == byRun {
		if err := c.lookAround(ctx, store); err != nil {
			c.s.m.log.Warn("look what a call has changed", "session", c.s.ID(), "call", c.id, "error", err)
			return
		}
	}
	if len(c.effects().Changes) == 0 {
		c.drop(ctx, store)
	}
}

// lookAround finds what the call has changed.
func (c *call) lookAround(ctx context.Context, store *snapshot.Store) error {
	found, err := store.Changed(ctx, c.step, maxChanges)
	if err != nil {
		return err
	}
	sums := map[string]string{} // that the tools know
	for _, change := range c.effects().Changes {
		sums[change.Path] = change.SHA256
	}
	e := Effects{More: found.Total - int64(len(found.Present)+len(found.Removed))}
	for _, path := range found.Present {
		e.Changes = append(e.Changes, tool.Change{Path: path, SHA256: sums[path]})
	}
	for _, path := range found.Removed {
		e.Changes = append(e.Changes, tool.Change{Path: path, Removed: true})
	}
	c.settle(e)
	return nil
}

func (c *call) drop(ctx context.Context, store *snapshot.Store) {
	if err := store.Forget(ctx, c.step); err != nil {
		c.s.m.log.Warn("forget a step", "session", c.s.ID(), "call", c.id, "error", err)
	}
	c.step = ""
}

// rollBack brings the workspace back and says so in what the call answers.
func (c *call) rollBack(ctx context.Context, store *snapshot.Store, res *tool.Result, failed error) (*tool.Result, error) {
	const done = "; the workspace was rolled back to what it was before this call"
	if _, err := store.Restore(ctx, c.step, nil); err != nil {
		c.s.m.log.Warn("roll a call back", "session", c.s.ID(), "call", c.id, "error", err)
		return nil, tool.Errorf(tool.Unavailable, "the call failed and its changes can't be rolled back; try snapshot_restore %s", c.step).Because(errors.Join(err, failed))
	}
	c.drop(ctx, store)
	c.settle(Effects{RolledBack: true})
	if failed != nil {
		e := *tool.AsError(failed)
		e.Message += done
		return nil, &e
	}
	said := *res
	said.Text += "\n(failed" + done + ")\n"
	return &said, nil
}

// pruneSteps keeps the number of steps bounded.
func (s *Session) pruneSteps(ctx context.Context, store *snapshot.Store) {
	steps, err := stepsOf(ctx, store)
	if n := len(steps); err == nil && n >= 2*maxSteps {
		err = store.Remove(ctx, ids(steps[:n-maxSteps])...)
	}
	if err != nil {
		s.m.log.Warn("remove old steps", "session", s.ID(), "error", err)
	}
}

// stepsOf are the steps, the oldest first.
func stepsOf(ctx context.Context, store *snapshot.Store) ([]snapshot.Info, error) {
	all, err := store.List(ctx)
	return slices.DeleteFunc(all, func(i snapshot.Info) bool { return i.Call == "" }), err
}

func ids(infos []snapshot.Info) []string {
	out := make([]string, len(infos))
	for i, info := range infos {
		out[i] = info.ID
	}
	return out
}

// Undone says what [Session.Undo] did.
type Undone struct {
	Call     string            `json:"call"`   // the workspace is what it was before this call
	Calls    int               `json:"calls"`  // that were undone with it
	Before   string            `json:"before"` // snapshot of the workspace as it was before the undo
	Restored snapshot.Restored `json:"restored"`
}

// Undo makes the workspace what it was before a call: the last one that changed
// it, or the one of the id given, and then all after it are undone too. There
// must be a step of that call ([SessionOptions.AutoSnapshot]), else it is
// not_found. The state before the undo stays as a snapshot.
func (s *Session) Undo(ctx context.Context, call string) (*Undone, error) {
	return observe(ctx, s, Event{Tool: "undo"}, func(ctx context.Context) (*Undone, *tool.Result, error) {
		store, err := s.host.store()
		if err != nil {
			return nil, nil, err
		}
		out, err := undo(ctx, store, call)
		if err == nil {
			callOf(ctx).note(out.Restored.Changes(), false)
		}
		return out, &tool.Result{}, err
	})
}

func undo(ctx context.Context, store *snapshot.Store, call string) (*Undone, error) {
	steps, err := stepsOf(ctx, store)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(steps, func(i snapshot.Info) bool { return i.Call == call || i.ID == call })
	if call == "" {
		if at, err = lastChange(ctx, store, steps); err != nil {
			return nil, err
		}
	}
	if at < 0 {
		return nil, noStep(call)
	}
	undone := steps[at:]
	before, err := store.Create(ctx, &snapshot.CreateOptions{Label: "before undo of " + undone[0].Call})
	if err != nil {
		return nil, err
	}
	restored, err := store.Restore(ctx, undone[0].ID, nil)
	if err != nil {
		return nil, err
	}
	return &Undone{Call: undone[0].Call, Calls: len(undone), Before: before.ID, Restored: restored}, store.Forget(ctx, ids(undone)...)
}

// lastChange finds the last step from which the workspace differs, -1 where there is
// none: a program that lives on leaves one whatever it does.
func lastChange(ctx context.Context, store *snapshot.Store, steps []snapshot.Info) (int, error) {
	for at := len(steps) - 1; at >= 0; at-- {
		found, err := store.Changed(ctx, steps[at].ID, 1)
		if err != nil || found.Total > 0 {
			return at, err
		}
	}
	return -1, nil
}

func noStep(call string) error {
	const when = "calls leave steps in a session that was made with auto_snapshot (wisbox session create --auto-snapshot)"
	if call == "" {
		return tool.Errorf(tool.NotFound, "there is nothing to undo: no step is left that differs from the workspace; %s", when)
	}
	return tool.Errorf(tool.NotFound, "call %q has left no step; the log shows the calls, and %s", call, when).In("step")
}

// RemoveSnapshots forgets snapshots and gives back the room that no other needs.
func (s *Session) RemoveSnapshots(ctx context.Context, ids ...string) error {
	_, err := observe(ctx, s, Event{Tool: "snapshot_remove"}, func(ctx context.Context) (struct{}, *tool.Result, error) {
		store, err := s.host.store()
		if err == nil {
			err = store.Remove(ctx, ids...)
		}
		return struct{}{}, &tool.Result{}, err
	})
	return err
}
