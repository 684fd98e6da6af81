package wisbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/changes"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Diff is what differs between two states of a workspace, see [Session.Diff].
type Diff = changes.Diff

// FileChange is one file or link of a [Diff].
type FileChange = changes.Change

// Applied says what [Session.Apply] did.
type Applied = changes.Applied

// MergedFile is a file that [Session.Apply] merged.
type MergedFile = changes.Merged

// Obstacle is a path whose change can't be carried home, and why.
type Obstacle = changes.Obstacle

// DiffOptions say what is compared; nil is all defaults.
type DiffOptions struct {
	// From is a snapshot. Default: what the session was given, which is the workspace as
	// it was after its mounts were copied, and nothing at all without mounts.
	From string
	// To is a snapshot. Default: the workspace as it is.
	To string
	// All lists what programs write by themselves too, as caches (__pycache__, .cache).
	// What lies in a directory .git is never listed.
	All bool
	// Lines counts the lines that differ, which reads the content of all changed files.
	Lines bool
}

// Diff lists the files and links that differ between two states of the workspace. Mode bits
// beside "executable", times and empty directories don't count, as in git. It works on
// a snapshot that it makes and forgets, so programs may go on. A snapshot that isn't there
// is not_found, also the one of what the session was given; see
// [SessionOptions.KeepGiven].
func (s *Session) Diff(ctx context.Context, opts *DiffOptions) (*Diff, error) {
	return perform[*Diff](ctx, s, diffOpOf(opts), hold.Streams{})
}

// Patch writes what [Session.Diff] lists as a patch that git apply takes, with binary files,
// modes, links and renames. It reads at most 4 GiB, for 5 minutes; a patch that was cut by
// that, or by w, has an error.
func (s *Session) Patch(ctx context.Context, w io.Writer, opts *DiffOptions) (*Diff, error) {
	op := diffOpOf(opts)
	op.Patch = true
	out := &counter{w: w}
	diff, err := perform[*Diff](ctx, s, op, hold.Streams{Stdout: out})
	if err == nil && out.err != nil { // a holder goes on
		err = tool.Errorf(tool.Unavailable, "the patch can't be written").Because(out.err)
	}
	return diff, err
}

// ApplyOptions say what is applied; nil is all defaults.
type ApplyOptions struct {
	// Path is a file or directory of the workspace; nothing else is applied. Default all.
	Path string
	// All applies what programs write by themselves too, see [DiffOptions.All].
	All bool
	// DryRun looks for conflicts and writes nothing.
	DryRun bool
	// ThreeWay merges a text file that was changed on the host too, with what was mounted as
	// their common ancestor. Where both changed the same lines both stand there, between
	// markers, and [Applied] counts that in Marked. Other conflicts stay conflicts.
	ThreeWay bool
}

// Apply writes what has changed since the session was given its mounts to the folders of
// the host that they were copied from: all of it, or nothing. Where a file of the host is
// neither as it was mounted nor as the session has it, the error is a conflict, and the
// answer beside it names each. Never written are directories .git, what the mounts leave
// out, links that could lead out of the folder and anything through a link; those stand in
// LeftOut. No program of the host is run.
func (s *Session) Apply(ctx context.Context, opts *ApplyOptions) (*Applied, error) {
	op := applyOp{}
	if opts != nil {
		op = applyOp(*opts)
	}
	done, err := perform[*Applied](ctx, s, op, hold.Streams{})
	if err == nil && len(done.Conflicts) > 0 {
		err = tool.Errorf(tool.Conflict, "the host's folder is not what was mounted (%d conflicts, the first is %q: %s); nothing was written",
			len(done.Conflicts), clip.Text(done.Conflicts[0].Path), done.Conflicts[0].Reason)
	}
	return done, err
}

// Branched says what [Session.Branch] did.
type Branched = changes.Branched

// BranchOptions say which branch is made; nil is all defaults.
type BranchOptions struct {
	// Name is the branch's, by default wisbox/ and the session's name. One that is there is
	// exists.
	Name string
	// From is the commit that it begins at. Default: HEAD.
	From string
	// Message is the commit's, in at most 64 KiB. Default: that it has the changes of the session.
	Message string
	// Path and All choose what is committed, see [ApplyOptions].
	Path string
	All  bool
	// Ignored takes new files too that the base's files .gitignore ignore.
	Ignored bool
	// DryRun looks for conflicts and writes nothing.
	DryRun bool
}

// Branch makes a commit of what has changed since the session was given its mounts, and a
// branch for it, in the git repository of the host that they were copied from. Index,
// working tree and HEAD stay as they are. Where the commit that it begins at has neither
// what was mounted nor what the session has, the error is a conflict, and the answer beside
// it names each. The host's git writes objects, apart from the repository's
// configuration, attributes and hooks; see docs/changes.md.
func (s *Session) Branch(ctx context.Context, opts *BranchOptions) (*Branched, error) {
	op := branchOp{}
	if opts != nil {
		op = branchOp(*opts)
	}
	op.Name = cmp.Or(op.Name, "wisbox/"+s.ID())
	op.Message = cmp.Or(op.Message, "Changes of the wisbox session "+s.ID())
	done, err := perform[*Branched](ctx, s, op, hold.Streams{})
	if err == nil && len(done.Conflicts) > 0 {
		err = tool.Errorf(tool.Conflict, "the repository is not what was mounted (%d conflicts, the first is %q: %s); nothing was made",
			len(done.Conflicts), clip.Text(done.Conflicts[0].Path), done.Conflicts[0].Reason)
	}
	return done, err
}

// diffOp compares two states, and writes a patch to its output stream if asked to.
type diffOp struct {
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	All   bool   `json:"all,omitempty"`
	Lines bool   `json:"lines,omitempty"`
	Patch bool   `json:"patch,omitempty"`
}

func diffOpOf(opts *DiffOptions) diffOp {
	if opts == nil {
		return diffOp{}
	}
	return diffOp{From: opts.From, To: opts.To, All: opts.All, Lines: opts.Lines}
}

func (o diffOp) event() Event {
	return Event{Tool: "diff", Args: map[string]any{"from": clip.Text(o.From), "to": clip.Text(o.To), "patch": o.Patch}}
}

func (o diffOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	b := budget.New(ctx, changes.Limits)
	defer b.Close()
	counted := &counter{w: io.Stdout}
	if !o.Patch {
		counted.w = nil
	}
	var diff *Diff
	err := l.between(b.Context(), o.From, o.To, changes.Options{All: o.All}, func(set *changes.Set) (err error) {
		if o.Patch || o.Lines {
			err = set.Patch(b, counted)
		}
		diff = set.Diff()
		return err
	})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	if diff.From = o.From; o.From == "" {
		diff.From = "given"
	}
	diff.To = o.To
	return diff, journal.Outcome{Size: int(counted.n)}, nil
}

// counter counts what passes, and remembers an error; without a writer nothing goes on.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (n int, err error) {
	if c.w == nil {
		return len(p), nil
	}
	n, err = c.w.Write(p)
	c.n += int64(n)
	c.err = cmp.Or(c.err, err)
	return n, err
}

// applyOp writes to the host's folders.
type applyOp struct {
	Path   string `json:"path,omitempty"`
	All    bool   `json:"all,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`

	ThreeWay bool `json:"three_way,omitempty"`
}

func (o applyOp) event() Event {
	return Event{Tool: "apply", Path: clip.Text(o.Path), Args: map[string]any{"dry_run": o.DryRun, "three_way": o.ThreeWay}}
}

func (o applyOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	var done *Applied
	err := l.goHome(ctx, changes.Options{All: o.All, Below: o.Path}, func(b *budget.Budget, set *changes.Set, homes []*hostmount.Home) (err error) {
		done, err = set.Apply(b, homes, changes.ApplyOptions{DryRun: o.DryRun, ThreeWay: o.ThreeWay})
		return err
	})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return done, journal.Outcome{Failed: len(done.Conflicts) > 0}, nil
}

// branchOp writes into a repository of the host.
type branchOp struct {
	Name    string `json:"name"`
	From    string `json:"from,omitempty"`
	Message string `json:"message"`
	Path    string `json:"path,omitempty"`
	All     bool   `json:"all,omitempty"`
	Ignored bool   `json:"ignored,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

func (o branchOp) event() Event {
	return Event{Tool: "branch", Path: clip.Text(o.Path), Args: map[string]any{"branch": clip.Text(o.Name), "from": clip.Text(o.From), "dry_run": o.DryRun}}
}

func (o branchOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	const longest = 64 << 10 // bytes of a message
	if len(o.Message) > longest || strings.Contains(o.Message, "\x00") {
		return nil, journal.Outcome{}, tool.Errorf(tool.Invalid, "the message has a NUL, or more than 64 KiB; give a shorter one").In("message")
	}
	var done *Branched
	err := l.goHome(ctx, changes.Options{All: o.All, Below: o.Path}, func(b *budget.Budget, set *changes.Set, homes []*hostmount.Home) (err error) {
		done, err = set.Branch(b, homes, changes.BranchOptions{Name: o.Name, From: o.From, Message: o.Message, Ignored: o.Ignored, DryRun: o.DryRun})
		return err
	})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return done, journal.Outcome{Failed: len(done.Conflicts) > 0}, nil
}

// goHome does something with what the session has changed and the folders of its mounts.
func (l *local) goHome(ctx context.Context, opts changes.Options, do func(*budget.Budget, *changes.Set, []*hostmount.Home) error) error {
	below, err := vfs.Any.Parse(opts.Below)
	if err != nil {
		return tool.AsError(err).In("path")
	}
	opts.Below = below
	if len(l.opts.Mounts) == 0 {
		return tool.Errorf(tool.NotFound, "the session has no mount to apply changes to; take files with wisbox cp, or a patch with wisbox diff --patch")
	}
	homes, err := hostmount.OpenHomes(l.opts.Mounts, &hostmount.Options{AllowedRoots: slices.Concat(l.m.opts.AllowedRoots, l.opts.AllowedRoots)})
	if err != nil {
		return err
	}
	defer hostmount.CloseHomes(homes)
	b := budget.New(ctx, changes.Limits)
	defer b.Close()
	return l.between(b.Context(), "", "", opts, func(set *changes.Set) error { return do(b, set, homes) })
}

// between compares two states of the workspace: snapshots, "" for what the session was
// given and for the workspace as it is.
func (l *local) between(ctx context.Context, from, to string, opts changes.Options, do func(*changes.Set) error) error {
	if from == "" {
		var err error
		if from, err = l.given(); err != nil {
			return err
		}
	}
	if to == "" {
		now, err := l.snapshots.Create(ctx, &snapshot.CreateOptions{Label: "compared", Auto: true, Spare: from})
		if err != nil {
			return err
		}
		defer l.forget(ctx, now.ID)
		to = now.ID
	}
	between, err := l.snapshots.Between(ctx, from, to)
	if err != nil {
		return err
	}
	defer between.Close()
	return do(changes.Of(between, opts))
}

// given is the snapshot of what the session was given, "" for nothing at all.
func (l *local) given() (string, error) {
	raw, err := readGiven(l.dir)
	id := string(bytes.TrimSpace(raw))
	switch {
	case err != nil:
		return "", err
	case id == "" && len(l.opts.Mounts) > 0:
		return "", tool.Errorf(tool.NotFound, "the session kept no state of what it was given; compare with a snapshot (wisbox snapshot list)")
	case id == "":
		return "", nil
	}
	all, err := l.snapshots.List(context.Background())
	if err == nil && !slices.ContainsFunc(all, func(i snapshot.Info) bool { return i.ID == id }) {
		err = tool.Errorf(tool.NotFound, "the snapshot of what the session was given (%s) was removed; compare with another one (wisbox snapshot list)", clip.Text(id))
	}
	return id, err
}

// givenRecord keeps, in the session's directory, the id of the snapshot of what the session
// was given. A copy of the session has the same.
const givenRecord = "given"

func readGiven(dir *overlay.Dir) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(sessionPath(dir), givenRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

func writeGiven(dir *overlay.Dir, raw []byte) error {
	const most = 64 // bytes of an id
	if len(raw) > most || strings.ContainsAny(string(raw), "/.") {
		return tool.Errorf(tool.Invalid, "the archive names no snapshot as what its session was given")
	}
	return os.WriteFile(filepath.Join(sessionPath(dir), givenRecord), raw, 0o600)
}

// keepGiven makes the snapshot of what the session was given.
func keepGiven(ctx context.Context, dir *overlay.Dir, o SessionOptions) error {
	if !o.Kept && !o.KeepGiven {
		return nil
	}
	store, err := newSnapshots(dir, o, nil)
	if err != nil {
		return err
	}
	info, err := store.Create(ctx, &snapshot.CreateOptions{Label: "mounted"})
	err = errors.Join(err, store.Close())
	if kind := tool.KindOf(err); kind == tool.NoSpace || kind == tool.Limit {
		return nil // the session is whole without; a comparison says what is missing
	}
	if err != nil {
		return tool.Errorf(tool.KindOf(err), "what was mounted can't be kept to compare with: %s", tool.AsError(err).Message).Because(err)
	}
	return writeGiven(dir, fmt.Append(nil, info.ID))
}

// copyGiven gives a copy of the session the same state to compare with.
func (l *local) copyGiven(ctx context.Context, dir *overlay.Dir, dst *snapshot.Store) error {
	raw, err := readGiven(l.dir)
	if err != nil || raw == nil {
		return err
	}
	err = l.snapshots.ShareWith(ctx, string(raw), dst)
	if tool.KindOf(err) == tool.NotFound {
		err = nil // it was removed; the copy says so when it is asked
	}
	return errors.Join(err, writeGiven(dir, raw))
}
