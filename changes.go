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
	"github.com/wisbox/wisbox/internal/scratch"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Diff lists the differences between two states of a workspace, see [Session.Diff].
type Diff = changes.Diff

// FileChange is one file or link of a [Diff].
type FileChange = changes.Change

// Applied is the result of [Session.Apply].
type Applied = changes.Applied

// MergedFile is a file that [Session.Apply] merged.
type MergedFile = changes.Merged

// Obstacle is a path whose change can't be applied to the host, with the reason.
type Obstacle = changes.Obstacle

// DiffOptions are options of [Session.Diff] and [Session.Patch]; nil means all defaults.
type DiffOptions struct {
	// From is a snapshot. Default: the workspace as it was after its mounts were copied, which is
	// empty without mounts.
	From string
	// To is a snapshot. Default: the current workspace.
	To string
	// All includes by-products of programs, such as caches (__pycache__, .cache), and files that the
	// .gitignore files of the mounts ignore, as they were mounted: programs can't change which. As in
	// git, a tracked file is never ignored. Files in the directory of a version control system (.git,
	// .hg …) are never listed.
	All bool
	// Path is the only file or directory of the workspace to compare. Default all.
	Path string
	// Lines counts the lines that differ, which reads the content of all changed files.
	Lines bool
}

// Diff lists the files and links that differ between two states of the workspace. Like git, it
// ignores mode bits other than "executable", times and empty directories. It compares with a
// temporary snapshot, so programs can continue. If a snapshot doesn't exist, including that of the
// mounted files, the error is not_found; see [SessionOptions.KeepGiven].
func (s *Session) Diff(ctx context.Context, opts *DiffOptions) (*Diff, error) {
	return perform[*Diff](ctx, s, diffOpOf(opts), hold.Streams{})
}

// Patch writes the differences of [Session.Diff] as a patch for git apply, with binary files, modes,
// links and renames. It reads at most 4 GiB, for at most 5 minutes. If a limit or an error of w cuts
// the patch, it returns an error.
func (s *Session) Patch(ctx context.Context, w io.Writer, opts *DiffOptions) (*Diff, error) {
	op := diffOpOf(opts)
	op.Patch = true
	out := &counter{w: w}
	diff, err := perform[*Diff](ctx, s, op, hold.Streams{Stdout: out})
	return diff, cmp.Or(err, out.failed("the patch"))
}

// ApplyOptions are options of [Session.Apply]; nil means all defaults.
type ApplyOptions struct {
	// Path is the only file or directory of the workspace to apply. Default all.
	Path string
	// All includes by-products of programs and ignored files, see [DiffOptions.All].
	All bool
	// DryRun checks for conflicts and writes nothing.
	DryRun bool
	// ThreeWay merges a text file that was also changed on the host, with the mounted file as the common
	// ancestor. If both changed the same lines, the merged file has both versions between markers, and
	// [Applied] counts that in Marked. Other conflicts stay conflicts.
	ThreeWay bool
}

// Apply writes the changes since the mounts were copied to the host folders that they came from: all
// of them, or none. If a file of the host is neither as it was mounted, nor as an earlier Apply wrote
// it, nor as in the session, the error is a conflict, and the result lists each such file. Apply never
// writes the directories of version control systems (.git, .hg …), files that the mounts exclude, links that could lead out of the folder, and anything through a
// link; these are in LeftOut. It runs no program of the host.
func (s *Session) Apply(ctx context.Context, opts *ApplyOptions) (*Applied, error) {
	op := applyOp{}
	if opts != nil {
		op = applyOp(*opts)
	}
	done, err := perform[*Applied](ctx, s, op, hold.Streams{})
	if err == nil && len(done.Conflicts) > 0 {
		err = tool.Errorf(tool.Conflict, "the host's folder differs from the mounted files (%d conflicts, the first is %q: %s); nothing was written",
			len(done.Conflicts), clip.Text(done.Conflicts[0].Path), done.Conflicts[0].Reason)
	}
	return done, err
}

// Branched is the result of [Session.Branch].
type Branched = changes.Branched

// BranchOptions are options of [Session.Branch]; nil means all defaults.
type BranchOptions struct {
	// Name is the branch's name, by default wisbox/ and the session's name. If the branch already
	// exists, the error is exists.
	Name string
	// From is the commit on which the branch is based. Default: HEAD.
	From string
	// Message is the commit's message, at most 64 KiB. Default: one that names the session.
	Message string
	// Path and All choose the changes to commit, see [ApplyOptions].
	Path string
	All  bool
	// Ignored includes new files that the .gitignore files of the base ignore.
	Ignored bool
	// DryRun looks for conflicts and writes nothing.
	DryRun bool
}

// Branch commits the changes since the mounts were copied, on a new branch in the host's git
// repository that they came from. Index, working tree and HEAD stay as they are. If a file in the
// base commit is neither as it was mounted nor as in the session, the error is a conflict, and the
// result lists each such file. The host's git writes the objects, isolated from the repository's
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
		err = tool.Errorf(tool.Conflict, "the repository differs from the mounted files (%d conflicts, the first is %q: %s); nothing was made",
			len(done.Conflicts), clip.Text(done.Conflicts[0].Path), done.Conflicts[0].Reason)
	}
	return done, err
}

// diffOp compares two states, and writes a patch to its output stream if requested.
type diffOp struct {
	Path  string `json:"path,omitempty"`
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
	return diffOp{Path: opts.Path, From: opts.From, To: opts.To, All: opts.All, Lines: opts.Lines}
}

func (o diffOp) event() Event {
	return Event{Tool: "diff", Path: clip.Text(o.Path), Args: map[string]any{"from": clip.Text(o.From), "to": clip.Text(o.To), "patch": o.Patch}}
}

func (o diffOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	below, err := vfs.Any.Parse(o.Path)
	if err != nil {
		return nil, journal.Outcome{}, tool.AsError(err).In("path")
	}
	b := budget.New(ctx, changes.Limits)
	defer b.Close()
	counted := &counter{w: io.Stdout}
	if !o.Patch {
		counted.w = nil
	}
	var diff *Diff
	err = l.between(b, o.From, o.To, &changes.Options{All: o.All, Below: below}, func(set *changes.Set, _ states) (err error) {
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

// counter counts the bytes that pass, and remembers an error; without a writer it only counts.
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

// failed returns the error of a write, which a holder's client passes over.
func (c *counter) failed(what string) error {
	if c.err == nil {
		return nil
	}
	return tool.Errorf(tool.Unavailable, "%s can't be written", what).Because(c.err)
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

func (o applyOp) options() changes.ApplyOptions {
	return changes.ApplyOptions{DryRun: o.DryRun, ThreeWay: o.ThreeWay}
}

func (o applyOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	var done *Applied
	err := l.goHome(ctx, &changes.Options{All: o.All, Below: o.Path}, func(b *budget.Budget, set *changes.Set, homes []*hostmount.Home, at states) (err error) {
		if done, err = set.Apply(b, homes, o.options()); err == nil && !o.DryRun && len(done.Conflicts) == 0 {
			l.noteApplied(ctx, at, done.Brought())
		}
		return err
	})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return done, journal.Outcome{Failed: len(done.Conflicts) > 0}, nil
}

// noteApplied records which state of the workspace an apply has written to the host, for later ones.
// Without the record they report conflicts with their own work.
func (l *local) noteApplied(ctx context.Context, at states, paths []string) {
	if len(paths) == 0 {
		return
	}
	info, err := l.snapshots.Graft(context.WithoutCancel(ctx), cmp.Or(at.applied, at.from), at.to, paths, "applied")
	if err == nil {
		err = writeSnapshotID(l.dir, appliedRecord, fmt.Append(nil, info.ID))
	}
	if err == nil && at.applied != "" {
		l.forget(ctx, at.applied)
	}
	if err != nil {
		l.m.log.Warn("record what was applied", "session", l.dir.ID(), "error", err)
	}
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

func (o branchOp) check() error {
	const longest = 64 << 10 // bytes of a message
	if len(o.Message) > longest || strings.Contains(o.Message, "\x00") {
		return tool.Errorf(tool.Invalid, "the message has a NUL, or more than 64 KiB; shorten it").In("message")
	}
	return nil
}

func (o branchOp) options() changes.BranchOptions {
	return changes.BranchOptions{Name: o.Name, From: o.From, Message: o.Message, Ignored: o.Ignored, DryRun: o.DryRun}
}

func (o branchOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if err := o.check(); err != nil {
		return nil, journal.Outcome{}, err
	}
	var done *Branched
	// The commit's own .gitignore files decide, not the mounted ones.
	err := l.goHome(ctx, &changes.Options{All: o.All, Ignored: true, Below: o.Path}, func(b *budget.Budget, set *changes.Set, homes []*hostmount.Home, _ states) (err error) {
		done, err = set.Branch(b, homes, o.options())
		return err
	})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return done, journal.Outcome{Failed: len(done.Conflicts) > 0}, nil
}

// goHome calls do with the session's changes and the folders of its mounts.
func (l *local) goHome(ctx context.Context, opts *changes.Options, do func(*budget.Budget, *changes.Set, []*hostmount.Home, states) error) error {
	below, err := vfs.Any.Parse(opts.Below)
	if err != nil {
		return tool.AsError(err).In("path")
	}
	opts.Below = below
	if from := l.opts.MountsFrom; from != "" {
		return tool.Errorf(tool.Unsupported, "the session's mounts came from %q, another machine; apply its changes there, with the same remote", clip.Text(from))
	}
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
	return l.between(b, "", "", opts, func(set *changes.Set, at states) error { return do(b, set, homes, at) })
}

// states are the snapshots of a comparison; applied is the one of what earlier applies wrote, or "".
type states struct{ from, to, applied string }

// between compares two states of the workspace: snapshots, or "", which means as from the files
// that the session was given, and as to the present workspace. A comparison with the given files also
// has what was applied since.
func (l *local) between(b *budget.Budget, from, to string, opts *changes.Options, do func(*changes.Set, states) error) error {
	ctx, at := b.Context(), states{from: from, to: to}
	given, err := l.given()
	if from == "" {
		if err != nil {
			return err
		}
		at.from, at.applied = given, l.applied(ctx)
	}
	if err != nil {
		given = "" // then no file is known to be ignored
	}
	if to == "" {
		now, err := l.snapshots.Create(ctx, &snapshot.CreateOptions{Label: "compared", Auto: true, Spare: cmp.Or(at.applied, at.from)})
		if err != nil {
			return err
		}
		defer l.forget(ctx, now.ID)
		at.to = now.ID
	}
	between, err := l.snapshots.Between(ctx, at.from, at.to)
	if err != nil {
		return err
	}
	defer between.Close()
	if at.applied != "" {
		applied, err := l.snapshots.Between(ctx, at.applied, at.to)
		if err != nil {
			return err
		}
		defer applied.Close()
		opts.Applied = applied
	}
	switch {
	case opts.All || opts.Ignored || given == "":
	case given == at.from:
		opts.Mounted = between.Old
	default:
		if opts.Mounted, err = l.snapshots.Tree(ctx, given); err != nil {
			return err
		}
		defer opts.Mounted.Close()
	}
	set, err := changes.Of(b, between, *opts)
	if err != nil {
		return err
	}
	return do(set, at)
}

// given returns the snapshot of the files that the session was given; "" if there were none.
func (l *local) given() (string, error) {
	raw, err := readSnapshotID(l.dir, givenRecord)
	id := string(bytes.TrimSpace(raw))
	switch {
	case err != nil:
		return "", err
	case id == "" && len(l.opts.Mounts) > 0:
		return "", tool.Errorf(tool.NotFound, "the session has no record of its files at creation; compare with a snapshot (wisbox snapshot list)")
	case id == "":
		return "", nil
	}
	all, err := l.snapshots.List(context.Background())
	if err == nil && !slices.ContainsFunc(all, func(i snapshot.Info) bool { return i.ID == id }) {
		err = tool.Errorf(tool.NotFound, "the snapshot of the session's files at creation (%s) was removed; compare with another one (wisbox snapshot list)", clip.Text(id))
	}
	return id, err
}

// applied returns the snapshot of what applies have written to the host; "" if there is none.
func (l *local) applied(ctx context.Context) string {
	raw, err := readSnapshotID(l.dir, appliedRecord)
	if err != nil || len(raw) == 0 {
		return ""
	}
	id := string(bytes.TrimSpace(raw))
	all, err := l.snapshots.List(ctx)
	if err != nil || !slices.ContainsFunc(all, func(i snapshot.Info) bool { return i.ID == id }) {
		return ""
	}
	return id
}

// Files, in the session's directory, with the id of a snapshot. A copy of the session has the same.
const (
	givenRecord   = "given"   // of the files that the session was given
	appliedRecord = "applied" // of these with the changes that were applied to the host
)

func readSnapshotID(dir *overlay.Dir, record string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(sessionPath(dir), record))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

func writeSnapshotID(dir *overlay.Dir, record string, raw []byte) error {
	const most = 64 // bytes of an id
	if len(raw) > most || strings.ContainsAny(string(raw), "/.") {
		return tool.Errorf(tool.Invalid, "the archive names no snapshot as what its session was given")
	}
	path := filepath.Join(sessionPath(dir), record)
	return errors.Join(os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path))
}

// keepGiven makes the snapshot of the files that the session was given.
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
		return nil // the session works without it; a comparison reports what is missing
	}
	if err != nil {
		return tool.Errorf(tool.KindOf(err), "what was mounted can't be kept to compare with: %s", tool.AsError(err).Message).Because(err)
	}
	err = os.Remove(filepath.Join(sessionPath(dir), appliedRecord)) // of other files
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeSnapshotID(dir, givenRecord, fmt.Append(nil, info.ID))
}

// copyGiven gives a copy of the session the same states to compare with.
func (l *local) copyGiven(ctx context.Context, dir *overlay.Dir, dst *snapshot.Store) error {
	for _, record := range []string{givenRecord, appliedRecord} {
		raw, err := readSnapshotID(l.dir, record)
		if err != nil || raw == nil {
			return err
		}
		err = l.snapshots.ShareWith(ctx, string(raw), dst)
		if tool.KindOf(err) == tool.NotFound {
			err = nil // it was removed; the copy reports that when it is needed
		}
		if err := errors.Join(err, writeSnapshotID(dir, record, raw)); err != nil {
			return err
		}
	}
	return nil
}

// changesOp writes a session's changes, for another machine to bring home.
type changesOp struct {
	All     bool   `json:"all,omitempty"`
	Ignored bool   `json:"ignored,omitempty"`
	Below   string `json:"below,omitempty"`
	For     string `json:"for"` // what the other machine does with the changes
}

func (o changesOp) event() Event {
	return Event{Tool: clip.Text(o.For), Path: clip.Text(o.Below), Args: map[string]any{"on": "another machine"}}
}

func (o changesOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	b := budget.New(ctx, changes.Limits)
	defer b.Close()
	var left changes.Left
	err := l.between(b, "", "", &changes.Options{All: o.All, Ignored: o.Ignored, Below: o.Below}, func(set *changes.Set, _ states) error {
		left = set.Left()
		return set.Pack(b, io.Stdout)
	})
	return left, journal.Outcome{}, err
}

// goHome calls do with the session's changes and the mounted folders of this machine.
func (d *distant) goHome(ctx context.Context, c journal.Call, op changesOp, do func(*budget.Budget, *changes.Set, []*hostmount.Home) error) error {
	below, err := vfs.Any.Parse(op.Below)
	if err != nil {
		return tool.AsError(err).In("path")
	}
	op.Below = below
	m := d.t.recall(d.at)
	if m == nil {
		return tool.Errorf(tool.NotFound, "nothing of this machine was mounted in the session, or this user's record of it is gone; take files with wisbox cp, or a patch with wisbox diff --patch")
	}
	homes, err := hostmount.OpenHomes(m.Mounts, &hostmount.Options{AllowedRoots: m.Roots})
	if err != nil {
		return err
	}
	defer hostmount.CloseHomes(homes)
	dir, err := scratch.New("wisbox-changes-")
	if err != nil {
		return tool.Errorf(tool.Unavailable, "no room for the changes; set TMPDIR to a directory with room").Because(err)
	}
	defer dir.Close()
	root, err := os.OpenRoot(dir.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	b := budget.New(ctx, changes.Limits)
	defer b.Close()
	got, left, err := d.fetch(b, c, op, root)
	if err != nil {
		return err
	}
	defer got.Close()
	set, err := changes.Of(b, got.Between, changes.Options{All: op.All, Below: below})
	if err != nil {
		return err
	}
	set.LeaveOut(left)
	return do(b, set, homes)
}

// fetch fetches the changes. They are complete, or there is an error.
func (d *distant) fetch(b *budget.Budget, c journal.Call, op changesOp, root *os.Root) (*changes.Unpacked, changes.Left, error) {
	var left changes.Left
	r, w := io.Pipe()
	asked := make(chan error, 1)
	go func() {
		answer, _, err := d.ask(b.Context(), c, op, hold.Streams{Stdout: w})
		if err == nil {
			left, err = answerAs[changes.Left](answer)
		}
		_ = w.CloseWithError(err)
		asked <- err
	}()
	got, err := changes.Unpack(b, r, root)
	_, _ = io.Copy(io.Discard, r) // anything after the last entry
	_ = r.Close()
	if failed := <-asked; failed != nil {
		err = failed
	}
	if err != nil && got != nil {
		got.Close()
	}
	return got, left, err
}

func (o applyOp) byFar(ctx context.Context, d *distant, c journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	var done *Applied
	err := d.goHome(ctx, c, changesOp{All: o.All, Below: o.Path, For: "apply"}, func(b *budget.Budget, set *changes.Set, homes []*hostmount.Home) (err error) {
		done, err = set.Apply(b, homes, o.options())
		return err
	})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return done, journal.Outcome{Failed: len(done.Conflicts) > 0}, nil
}

func (o branchOp) byFar(ctx context.Context, d *distant, c journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if err := o.check(); err != nil {
		return nil, journal.Outcome{}, err
	}
	var done *Branched
	err := d.goHome(ctx, c, changesOp{All: o.All, Ignored: true, Below: o.Path, For: "branch"}, func(b *budget.Budget, set *changes.Set, homes []*hostmount.Home) (err error) {
		done, err = set.Branch(b, homes, o.options())
		return err
	})
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return done, journal.Outcome{Failed: len(done.Conflicts) > 0}, nil
}
