package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/bash"
	"github.com/wisbox/wisbox/evaltool/javascript"
	"github.com/wisbox/wisbox/evaltool/lisp"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/overlay"
	profiles "github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// services are the parts that make a session's tools. To list the tools, most of
// them may be nil.
type services struct {
	files     *vfs.FS
	shell     *shelltool.Shell
	eval      *evaltool.Evaluator
	lisp      *lisp.Lisp
	snapshots *snapshot.Store
	digest    *digest.Digester
	texts     *rlm.Ops
	steps     *journal.Steps
}

// tools is the order in which the tools are listed. room is asked before each call
// of one that needs it.
func (s *services) tools(room func(context.Context) error) *tool.Set {
	return tool.NewSet(roomy(slices.Concat(
		s.files.Tools(), s.shell.Tools(), s.eval.Tools(), s.lisp.Tools(), s.snapshots.Tools(), s.digest.Tools(), s.texts.Tools()), room)...)
}

// roomy are tools that are refused where there is no room for what they write.
func roomy(tools []tool.Tool, room func(context.Context) error) []tool.Tool {
	out := slices.Clone(tools)
	for i, t := range tools {
		if t.NeedsRoom {
			out[i] = t.Via(func(ctx context.Context, raw json.RawMessage) (*tool.Result, error) {
				if err := room(ctx); err != nil {
					return nil, err
				}
				return t.Call(ctx, raw)
			})
		}
	}
	return out
}

// shaped are wisbox's own tools as a profile has them.
func shaped(own *tool.Set, name string) (*tool.Set, error) {
	if name == "" || name == "wisbox" {
		return own, nil
	}
	return profiles.New(name, own, own)
}

// busy reports whether something runs that the session's end would cut off.
func (s *services) busy() bool { return s.shell.Running() > 0 || s.lisp.Busy() }

// close ends what runs; the files belong to the session.
func (s *services) close() error {
	return errors.Join(s.shell.Close(), s.eval.Close(), s.lisp.Close(), s.snapshots.Close())
}

// newServices makes the parts of a session that works in this process.
func (l *local) newServices(files *vfs.FS) (*services, error) {
	var cleanup undo.Steps
	defer cleanup.Run()
	s := &services{files: files}
	runner, log := l.runner, l.m.log
	var err error
	s.shell, err = shelltool.New(&shelltool.Options{Runner: runner, Files: files, Paths: l.opts.Paths, Output: l.dir.Output(), MaxTimeout: l.opts.MaxTimeout, MaxProcesses: l.opts.MaxProcesses, Origin: originOf, Outlives: l.holds.Load, Awake: l.awake, Known: l.known, Ended: l.processEnded})
	if err != nil {
		return nil, err
	}
	cleanup.Close(s.shell)
	engine, err := l.m.wasm()
	if err != nil {
		return nil, err
	}
	s.eval, err = evaltool.New(&evaltool.Options{
		Files: files, Paths: l.opts.Paths, Container: python.New(&python.Options{Runner: runner}), Wasm: engine.Session(files),
		Bash: bash.New(&bash.Options{Runner: runner}), JavaScript: javascript.New(&javascript.Options{Runner: runner}), Logger: log,
		MaxCode: l.opts.MaxCode, MaxTimeout: l.opts.MaxEvalTimeout, MaxOutput: l.opts.MaxOutput, Clean: l.cleanPart,
	})
	if err != nil {
		return nil, err
	}
	cleanup.Close(s.eval)
	s.lisp = lisp.New(&lisp.Options{Runner: runner, Awake: l.awake, Memory: l.opts.Limits.Memory, Record: lispFile(l.dir), Logger: log})
	cleanup.Close(s.lisp)
	if s.snapshots, err = newSnapshots(l.dir, l.opts, l.box); err != nil {
		return nil, err
	}
	cleanup.Close(s.snapshots)
	s.steps = journal.NewSteps(&journal.StepOptions{Store: s.snapshots, Each: l.opts.AutoSnapshot, Rollback: l.opts.RollbackOnFailure, Log: log.With("session", l.dir.ID())})
	s.digest = l.m.newDigest(l.dir, l.opts, files)
	cache, err := rlm.OpenCache(filepath.Join(l.m.store.Path(), "operations"), 0)
	if err != nil { // results are then worked out each time
		log.Warn("open the cache of operations", "error", err)
	}
	if s.texts, err = rlm.New(&rlm.Options{Files: files, Eval: engine, Cache: cache, Logger: log}); err != nil {
		return nil, err
	}
	cleanup.Keep()
	return s, nil
}

// lispRecord keeps, in the session's directory, what the session has defined in
// Lisp. A clone that is to begin with it gets a copy of the file before it opens.
const lispRecord = "lisp.json"

func lispFile(dir *overlay.Dir) string { return filepath.Join(sessionPath(dir), lispRecord) }

// readLisp gives that file; a session that has defined nothing has none.
func readLisp(dir *overlay.Dir) ([]byte, error) {
	raw, err := os.ReadFile(lispFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

func writeLisp(dir *overlay.Dir, raw []byte) error { return os.WriteFile(lispFile(dir), raw, 0o600) }

func removeLisp(dir *overlay.Dir) error {
	if err := os.Remove(lispFile(dir)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// newSnapshots opens the snapshots of a session. b is where its programs run; nil
// where none do.
func newSnapshots(dir *overlay.Dir, opts SessionOptions, b *box.Box) (*snapshot.Store, error) {
	o := &snapshot.Options{Workspace: dir.Workspace(), Tmp: dir.Tmp(), Store: dir.Snapshots(), Lock: dir.Lock, Room: dir.Reserve, Fsync: opts.Fsync}
	o.Limits.Store = opts.snapshotSpace()
	if b != nil {
		o.Activity = b.Activity
		o.Quiesce = func(ctx context.Context) (func(), bool, error) { return quiesce(ctx, dir, b) }
	}
	o.Owner = dir.State().User
	store, err := snapshot.New(o)
	if err != nil {
		return nil, err
	}
	// A restore that its process did not live to finish is finished now, before
	// any program sees the half of it.
	_, err = store.Recover(context.Background())
	return store, err
}

// versionsRecord keeps, in the session's directory, the versions and times of its files.
// A copy of the session begins with what the other has carried over.
const versionsRecord = "versions.json"

func writeVersions(dir *overlay.Dir, raw []byte) error {
	return os.WriteFile(filepath.Join(sessionPath(dir), versionsRecord), raw, 0o600)
}

// newFiles opens the workspace of a session for the tools.
func newFiles(dir *overlay.Dir, opts SessionOptions) (*vfs.FS, error) {
	o := &vfs.Options{
		Root: dir.Workspace(), Tmp: dir.Tmp(), Lock: dir.Lock, ReadBeforeWrite: opts.ReadBeforeWrite, Fsync: opts.Fsync, Paths: opts.Paths,
		VersionsFile: filepath.Join(sessionPath(dir), versionsRecord),
	}
	o.Owner = dir.State().User
	if _, err := os.Lstat(o.VersionsFile); err != nil && !opts.Kept { // nobody will come back to an ephemeral one
		o.VersionsFile = ""
	}
	return vfs.New(o)
}
