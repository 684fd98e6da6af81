// Package steps keeps a snapshot from before each call that changed the workspace, and undoes calls.
package steps

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/byproduct"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// A step is a snapshot from before a call that changed the workspace. It has the call's id. Steps
// form a stack: Undo removes the last ones.
const (
	maxSteps   = 256 // at twice as many, the oldest are removed
	pruneEvery = 32  // calls between two checks of the number
)

var (
	// stepTime bounds the work for a step before a call, and after a call whose caller may be gone.
	stepTime = patience.For(2 * time.Minute)
	// freeingTime bounds the step of a call that frees disk space, and the snapshot before an undo:
	// both continue without it.
	freeingTime = patience.For(8 * time.Second)
)

// Options are the options of a session's steps. Store and Log are required.
type Options struct {
	Store *snapshot.Store
	// Each makes a step for every call that can change the workspace.
	Each bool
	// Rollback undoes the changes of calls that fail. It implies Each, and makes such calls wait
	// for each other.
	Rollback bool
	Log      *slog.Logger
}

// Stack has the steps of one session. Its methods may be called from many
// goroutines at once.
type Stack struct {
	Options
	made  atomic.Int64 // steps made by this process
	alone *lock.Mutex  // held by a call that may be rolled back
}

// New returns the steps of a session.
func New(opts *Options) *Stack {
	return &Stack{Options: *opts, alone: lock.New()}
}

// Do calls do, which can change the workspace as effect says, and returns the changes. The effects
// are valid even with an error.
func (s *Stack) Do(ctx context.Context, c journal.Call, effect tool.Effect, do func(context.Context) (*tool.Result, error)) (*tool.Result, journal.Effects, error) {
	ctx = journal.WithCall(ctx, c)
	if effect == tool.NoEffect || !s.Each && !s.Rollback {
		res, err := do(ctx)
		return res, noted(effect, res, err), err
	}
	free, err := s.beAlone(ctx)
	if err != nil {
		return nil, journal.Effects{}, err
	}
	defer free()
	step, missing := s.begin(ctx, c, effect)
	if missing != nil && !s.mayGoOn(ctx, effect, missing) {
		return nil, journal.Effects{}, tool.Errorf(missing.Kind, "the step before this call can't be made, so the call was not run: %s", missing.Message).Because(missing)
	}
	res, err := do(ctx)
	seen := noted(effect, res, err)
	if missing != nil {
		return stepless(res, missing), seen, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	if s.Rollback && (err != nil || res.Failed) {
		return s.rollBack(ctx, c, step, seen, res, err)
	}
	return res, s.end(ctx, c, step, effect, seen, err), err
}

// mayGoOn reports whether a call may run without a step: if it frees room, or if the workspace is larger than any
// snapshot, which no removal of snapshots would change.
func (s *Stack) mayGoOn(ctx context.Context, effect tool.Effect, missing *tool.Error) bool {
	return ctx.Err() == nil && (effect == tool.FreeingEffect || missing.Kind == tool.Limit && !s.Rollback)
}

// stepless adds to a call's answer that the call can't be undone.
func stepless(res *tool.Result, why *tool.Error) *tool.Result {
	if res == nil {
		return nil
	}
	said := *res
	said.Text += "\n(this call can't be undone: no step could be made before it: " + why.Message + ")\n"
	return &said
}

// noted returns the effects that the call itself reports.
func noted(effect tool.Effect, res *tool.Result, err error) journal.Effects {
	if effect == tool.NoEffect {
		return journal.Effects{}
	}
	var e journal.Effects
	if res != nil {
		e = journal.EffectsOf(res.Changes)
	}
	// For an invalid call no program has started, and what it may have changed before the error it reports.
	e.Unknown = tool.KindOf(err) != tool.Invalid && (!effect.Told() || leavesPart(err))
	return e
}

// leavesPart reports whether a call that failed with the error may have changed something before. Others are refusals.
func leavesPart(err error) bool {
	switch tool.KindOf(err) {
	case "", tool.Invalid, tool.NotFound, tool.Exists, tool.IsDir, tool.NotDir, tool.NotRegular, tool.NotText, tool.Escape,
		tool.TooLarge, tool.NoMatch, tool.Ambiguous, tool.Conflict, tool.Unsupported, tool.Busy:
		return false
	}
	return true
}

// beAlone makes calls that may be rolled back change the workspace one after the other; others
// don't wait.
func (s *Stack) beAlone(ctx context.Context) (free func(), err error) {
	if !s.Rollback {
		return func() {}, nil
	}
	if err := s.alone.Lock(ctx); err != nil {
		return nil, tool.AsError(err)
	}
	return s.alone.Unlock, nil
}

// begin creates the step and returns its snapshot's ID.
func (s *Stack) begin(ctx context.Context, c journal.Call, effect tool.Effect) (string, *tool.Error) {
	most := stepTime
	if effect == tool.FreeingEffect {
		most = freeingTime
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	info, err := s.Store.Create(ctx, &snapshot.CreateOptions{Label: labelPrefix + c.Tool, Call: c.ID})
	if err != nil {
		return "", tool.AsError(err)
	}
	if s.made.Add(1)%pruneEvery == 0 {
		s.prune(ctx)
	}
	return info.ID, nil
}

// end records the call's changes. A call without changes leaves no step; one that failed may have changed a part of what
// it was to change.
func (s *Stack) end(ctx context.Context, c journal.Call, step string, effect tool.Effect, seen journal.Effects, failed error) journal.Effects {
	if effect == tool.LastingEffect {
		return seen
	}
	if effect == tool.ProgramEffect || leavesPart(failed) {
		found, err := s.lookAround(ctx, step, seen)
		if err != nil {
			s.Log.Warn("look what a call has changed", "call", c.ID, "error", err)
			return seen
		}
		seen = found
	}
	if len(seen.Changes) == 0 {
		s.drop(ctx, c, step)
	}
	return seen
}

// lookAround finds the changes since the step.
func (s *Stack) lookAround(ctx context.Context, step string, seen journal.Effects) (journal.Effects, error) {
	found, err := s.Store.Changed(ctx, step, journal.MaxChanges, nil)
	if err != nil {
		return journal.Effects{}, err
	}
	sums := map[string]string{} // known to the tools
	for _, change := range seen.Changes {
		sums[change.Path] = change.SHA256
	}
	e := journal.Effects{More: found.Total - int64(len(found.Present)+len(found.Removed))}
	for _, path := range found.Present {
		e.Changes = append(e.Changes, tool.Change{Path: path, SHA256: sums[path]})
	}
	for _, path := range found.Removed {
		e.Changes = append(e.Changes, tool.Change{Path: path, Removed: true})
	}
	return e, nil
}

func (s *Stack) drop(ctx context.Context, c journal.Call, step string) {
	if err := s.Store.Forget(ctx, step); err != nil {
		s.Log.Warn("forget a step", "call", c.ID, "error", err)
	}
}

// rollBack restores the workspace and reports that in the call's answer.
func (s *Stack) rollBack(ctx context.Context, c journal.Call, step string, seen journal.Effects, res *tool.Result, failed error) (*tool.Result, journal.Effects, error) {
	const done = "; the workspace was rolled back to what it was before this call"
	if _, err := s.Store.Restore(ctx, step, nil); err != nil {
		s.Log.Warn("roll a call back", "call", c.ID, "error", err)
		return nil, seen, tool.Errorf(tool.Unavailable, "the call failed and its changes can't be rolled back; try snapshot_restore %s", step).Because(errors.Join(err, failed))
	}
	s.drop(ctx, c, step)
	rolled := journal.Effects{RolledBack: true}
	if failed != nil {
		e := *tool.AsError(failed)
		e.Message += done
		return nil, rolled, &e
	}
	said := *res
	said.Text += "\n(failed" + done + ")\n"
	return &said, rolled, nil
}

// prune keeps the number of steps bounded.
func (s *Stack) prune(ctx context.Context) {
	steps, err := s.list(ctx)
	if n := len(steps); err == nil && n >= 2*maxSteps {
		err = s.Store.Remove(ctx, ids(steps[:n-maxSteps])...)
	}
	if err != nil {
		s.Log.Warn("remove old steps", "error", err)
	}
}

// list returns the steps, the oldest first.
func (s *Stack) list(ctx context.Context) ([]snapshot.Info, error) {
	all, err := s.Store.List(ctx)
	return slices.DeleteFunc(all, func(i snapshot.Info) bool { return i.Call == "" }), err
}

func ids(infos []snapshot.Info) []string {
	out := make([]string, len(infos))
	for i, info := range infos {
		out[i] = info.ID
	}
	return out
}

// Undone is the result of an undo.
type Undone struct {
	Call     string            `json:"call"`             // the workspace is as it was before this call
	Tool     string            `json:"tool,omitempty"`   // of that call
	At       time.Time         `json:"at"`               // the call's beginning
	Calls    int               `json:"calls"`            // number of undone calls
	Before   string            `json:"before,omitempty"` // snapshot of the workspace before the undo
	Unkept   string            `json:"unkept,omitempty"` // the reason why there is no such snapshot
	Restored snapshot.Restored `json:"restored"`
}

// Undo restores the workspace as it was before a call, and so undoes all later calls too. "" means
// the last call that changed more than by-products (caches, git's index: see package byproduct). If
// that call has no step, the error is not_found. If an automatic snapshot can be made in 8 s, it
// keeps the state before the undo.
func (s *Stack) Undo(ctx context.Context, call string) (*Undone, error) {
	steps, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	at := stepOf(steps, call)
	if call == "" {
		if at, err = s.lastChange(ctx, steps); err != nil {
			return nil, err
		}
	}
	if at < 0 {
		return nil, s.noStep(ctx, call, steps)
	}
	undone := steps[at:]
	out := &Undone{Call: undone[0].Call, Tool: toolOf(undone[0]), At: undone[0].CreatedAt, Calls: len(undone)}
	if out.Before, err = s.keepBefore(ctx, undone[0]); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		out.Unkept = tool.AsError(err).Message
	}
	if out.Restored, err = s.Store.Restore(ctx, undone[0].ID, nil); err != nil {
		return nil, err
	}
	return out, s.Store.Forget(ctx, ids(undone)...)
}

// keepBefore makes a snapshot of the state that an undo replaces. It never removes the step to
// restore.
func (s *Stack) keepBefore(ctx context.Context, step snapshot.Info) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, freeingTime)
	defer cancel()
	info, err := s.Store.Create(ctx, &snapshot.CreateOptions{Label: "before undo of " + step.Call, Auto: true, Spare: step.ID})
	return info.ID, err
}

// stepOf finds the step of a call by its id, by the step's own id, or by a unique beginning of
// either; it returns -1 if there is none.
func stepOf(steps []snapshot.Info, word string) int {
	const least = 4 // characters that may stand for an id
	begins := func(id string) bool {
		return len(word) >= least && strings.HasPrefix(strings.ToLower(id), strings.ToLower(word))
	}
	at := -1
	for i, s := range steps {
		switch {
		case word != "" && (strings.EqualFold(s.Call, word) || s.ID == word):
			return i
		case !begins(s.Call) && !begins(s.ID):
		case at >= 0:
			return -1
		default:
			at = i
		}
	}
	return at
}

// lastChange finds the last step that differs from the workspace in more than by-products; -1 if
// there is none. A program that lives on leaves a step whether or not it changes anything.
func (s *Stack) lastChange(ctx context.Context, steps []snapshot.Info) (int, error) {
	return s.lastDifference(ctx, steps, byproduct.Is)
}

func (s *Stack) lastDifference(ctx context.Context, steps []snapshot.Info, ignore func(string) bool) (int, error) {
	for at, step := range slices.Backward(steps) {
		found, err := s.Store.Changed(ctx, step.ID, 1, &snapshot.ChangedOptions{Ignore: ignore})
		if tool.KindOf(err) == tool.Limit { // more changes than any step has
			return at, nil
		}
		if err != nil || found.Total > 0 {
			return at, err
		}
	}
	return -1, nil
}

func (s *Stack) noStep(ctx context.Context, call string, steps []snapshot.Info) error {
	const when = "calls leave no steps in a session without undo (wisbox create --no-undo, run, eval)"
	if call != "" {
		return tool.Errorf(tool.NotFound, "call %q has left no step; the log shows the calls, and %s", call, when).In("step")
	}
	if at, err := s.lastDifference(ctx, steps, nil); err == nil && at >= 0 {
		return tool.Errorf(tool.NotFound, "there is nothing to undo: since call %s only what programs write by themselves has changed (%s); to undo that too, name the call",
			steps[at].Call, strings.Join(byproduct.List(), ", "))
	}
	return tool.Errorf(tool.NotFound, "there is nothing to undo: no step is left that differs from the workspace; %s", when)
}

const labelPrefix = "before " // of a step; the tool's name follows

func toolOf(step snapshot.Info) string { return strings.TrimPrefix(step.Label, labelPrefix) }

// Step is a state that an undo can restore: the workspace before a call.
type Step struct {
	Call string    `json:"call"`
	Tool string    `json:"tool"`
	At   time.Time `json:"at"`
	// Changes are the first of the Total paths that the call changed; a program that lived on may
	// have changed some of them later. By-products don't count: if the call changed only these,
	// Total is 0, and an undo without a call skips the step.
	Changes []tool.Change `json:"changes"`
	Total   int64         `json:"total_changes"`
}

const stepChanges = 10 // named by a Step

// List returns the last steps, at most n, the latest first.
func (s *Stack) List(ctx context.Context, n int) ([]Step, error) {
	all, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	steps, next := []Step{}, ""
	for _, info := range slices.Backward(all[max(len(all)-n, 0):]) {
		found, err := s.Store.Changed(ctx, info.ID, stepChanges, &snapshot.ChangedOptions{To: next, Ignore: byproduct.Is})
		if err != nil {
			return nil, err
		}
		step := Step{Call: info.Call, Tool: toolOf(info), At: info.CreatedAt, Changes: []tool.Change{}, Total: found.Total}
		for _, path := range found.Present {
			step.Changes = append(step.Changes, tool.Change{Path: path})
		}
		for _, path := range found.Removed {
			step.Changes = append(step.Changes, tool.Change{Path: path, Removed: true})
		}
		steps, next = append(steps, step), info.ID
	}
	return steps, nil
}
