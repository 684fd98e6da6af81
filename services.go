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
	"github.com/wisbox/wisbox/internal/steps"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/overlay"
	profiles "github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// services are the components of a session's tools. To list the tools, most of them may be nil.
type services struct {
	files     *vfs.FS
	shell     *shelltool.Shell
	eval      *evaltool.Evaluator
	lisp      *lisp.Lisp
	snapshots *snapshot.Store
	digest    *digest.Digester
	texts     *rlm.Ops
	steps     *steps.Stack
}

// tools returns the tools in the order of their list. It calls room before each call of a tool that
// needs disk space.
func (s *services) tools(room func(context.Context) error) *tool.Set {
	return tool.NewSet(roomy(slices.Concat(
		s.files.Tools(), s.shell.Tools(), s.eval.Tools(), s.lisp.Tools(), s.snapshots.Tools(), s.digest.Tools(), s.texts.Tools()), room)...)
}

// roomy returns the tools, which fail if there is no room for their writes.
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

// shaped returns wisbox's own tools in the form of a profile.
func shaped(own *tool.Set, name string) (*tool.Set, error) {
	if name == "" || name == "wisbox" {
		return own, nil
	}
	return profiles.New(name, own, own)
}

// busy reports whether the session's end would interrupt something.
func (s *services) busy() bool { return s.shell.Running() > 0 || s.lisp.Busy() }

// close ends everything that runs; the files belong to the session.
func (s *services) close() error {
	return errors.Join(s.shell.Close(), s.eval.Close(), s.lisp.Close(), s.snapshots.Close())
}

// newServices creates the components of a session that works in this process.
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
		LoggedCode: func(code string) string { return l.secrets.Redactor().Head(code) },
		MaxCode:    l.opts.MaxCode, MaxTimeout: l.opts.MaxEvalTimeout, MaxOutput: l.opts.MaxOutput, Clean: l.cleanPart,
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
	s.steps = steps.New(&steps.Options{Store: s.snapshots, Each: l.opts.AutoSnapshot, Rollback: l.opts.RollbackOnFailure, Log: log.With("session", l.dir.ID())})
	s.digest = l.m.newDigest(l.dir, l.opts, files)
	cache, err := rlm.OpenCache(filepath.Join(l.m.store.Path(), "operations"), 0)
	if err != nil { // then results are computed each time
		log.Warn("open the cache of operations", "error", err)
	}
	if s.texts, err = rlm.New(&rlm.Options{Files: files, Eval: engine, Cache: cache, Logger: log}); err != nil {
		return nil, err
	}
	cleanup.Keep()
	return s, nil
}

// lispRecord is the file, in the session's directory, with the session's Lisp definitions. A clone
// gets a copy of the file before it opens.
const lispRecord = "lisp.json"

func lispFile(dir *overlay.Dir) string { return filepath.Join(sessionPath(dir), lispRecord) }

// readLisp returns the content of the file; nil if the session has no definitions.
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

// newSnapshots opens the snapshots of a session. b runs its programs; nil if there are none.
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
	// Finish a restore that was interrupted by the end of its process, before a program sees the
	// half of it.
	_, err = store.Recover(context.Background())
	return store, err
}

// versionsRecord is the file, in the session's directory, with the versions and times of its files.
// A copy of the session begins with a copy of it.
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
	o.Limits.InBytes = max(opts.Limits.Disk, 2<<30)                   // as large as the disk, however large that is
	if _, err := os.Lstat(o.VersionsFile); err != nil && !opts.Kept { // nobody returns to an ephemeral one
		o.VersionsFile = ""
	}
	return vfs.New(o)
}

// Digest returns the session's digest for its caller: to read it, to replace it for this session or
// for all that share the store and tag, and to have a better one written
// ([digest.Digester.Optimize]). Agents have workspace_digest, which replaces it only for their
// session.
func (s *Session) Digest() *digest.Digester { return s.at.Digest() }

// newDigest stores a digest that a caller has set with the session's settings, where every process
// that opens the session finds it.
func (h *here) newDigest(dir *overlay.Dir, opts SessionOptions, files *vfs.FS) *digest.Digester {
	o := &digest.Options{Files: files.FS(), Log: h.log, Overrides: h.digests(), Tag: opts.DigestTag}
	o.Kept = func(context.Context) (*digest.Text, error) {
		state, err := dir.Reload()
		if err != nil {
			return nil, err
		}
		settings, err := settingsOf(state.Settings)
		return settings.Digest, err
	}
	o.Keep = func(ctx context.Context, text *digest.Text) error {
		return dir.Update(ctx, func(s *overlay.State) error {
			settings, err := settingsOf(s.Settings)
			if err != nil {
				return err
			}
			settings.Digest = text
			s.Settings, err = json.Marshal(settings)
			return err
		})
	}
	return digest.New(o)
}

// Digest returns the digest of all sessions without their own, under the tag [digest.DefaultTag]:
// it has no files, and nothing can be set at the scope of a session.
func (m *Manager) Digest() *digest.Digester { return m.DigestTagged(digest.DefaultTag) }

// DigestTagged is like Digest for the sessions with a [SessionOptions.DigestTag].
func (m *Manager) DigestTagged(tag string) *digest.Digester {
	return m.place.digest(tag)
}

func (h *here) digest(tag string) *digest.Digester {
	refuse := func(context.Context, *digest.Text) error {
		return tool.Errorf(tool.Unsupported, "this is the digest of all sessions; take one to set its own").In("scope")
	}
	return digest.New(&digest.Options{
		Log: h.log, Overrides: h.digests(), Keep: refuse, Tag: tag,
		Kept: func(context.Context) (*digest.Text, error) { return nil, nil },
	})
}

func (h *here) digests() digest.Overrides {
	if h.opts.Digests != nil {
		return h.opts.Digests
	}
	return digestDir(filepath.Join(h.store.Path(), "digests"))
}

// digestDir is a digest.Dir that is created at the first write.
type digestDir string

// Get implements digest.Overrides.
func (d digestDir) Get(ctx context.Context, key, tag string) (digest.Text, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return digest.Text{}, err
	}
	defer root.Close()
	return digest.Dir{Root: root}.Get(ctx, key, tag)
}

// Put implements digest.Overrides.
func (d digestDir) Put(ctx context.Context, key, tag string, text digest.Text) error {
	if err := os.Mkdir(string(d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return err
	}
	defer root.Close()
	return digest.Dir{Root: root}.Put(ctx, key, tag, text)
}

// Delete implements digest.Overrides.
func (d digestDir) Delete(ctx context.Context, key, tag string) error {
	root, err := os.OpenRoot(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return digest.Dir{Root: root}.Delete(ctx, key, tag)
}
