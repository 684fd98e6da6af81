package wisbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/lisp"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/evaltool/wasm"
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
}

// tools is the order in which the tools are listed.
func (s *services) tools() *tool.Set {
	return tool.NewSet(slices.Concat(
		changing(s.files.Tools(), always(byTools)), changing(s.shell.Tools(), shellEffect), changing(s.eval.Tools(), always(byRun)),
		changing(s.lisp.Tools(), always(byRun)), restoring(s.snapshots.Tools()), s.digest.Tools(), s.texts.Tools())...)
}

// shellEffect tells what ends with its call from what runs on.
func shellEffect(name string) effect {
	if name == "shell_execute" {
		return byRun
	}
	return byLasting
}

// restoring: of the snapshots' tools one changes the workspace.
func restoring(tools []tool.Tool) []tool.Tool {
	for i, t := range tools {
		if t.Name == "snapshot_restore" {
			copy(tools[i:], changing(tools[i:i+1], always(byTools)))
		}
	}
	return tools
}

func (s *services) profile(name string) (*tool.Set, error) {
	own := s.tools()
	if name == "" || name == "wisbox" {
		return own, nil
	}
	return profiles.New(name, own, own)
}

// busy tells whether something runs that the session's end would cut off.
func (s *services) busy() bool { return s.shell.Running() > 0 || s.lisp.Busy() }

// close ends what runs; the files belong to the session.
func (s *services) close() error {
	return errors.Join(s.shell.Close(), s.eval.Close(), s.lisp.Close(), s.snapshots.Close())
}

// newServices makes the parts of a session that works in this process.
func (l *local) newServices(files *vfs.FS) (s *services, err error) {
	s = &services{files: files}
	runner, log := l.runner, l.m.log
	s.shell, err = shelltool.New(&shelltool.Options{Runner: runner, Files: files, Output: l.dir.Output(), MaxTimeout: l.opts.MaxTimeout})
	if err != nil {
		return nil, err
	}
	engine, err := l.m.wasmEngine()
	if err != nil {
		return nil, err
	}
	s.eval, err = evaltool.New(&evaltool.Options{
		Files: files, Container: python.New(&python.Options{Runner: runner}), Wasm: engine.Session(files), Logger: log,
		MaxCode: l.opts.MaxCode, MaxTimeout: l.opts.MaxEvalTimeout,
	})
	if err != nil {
		return nil, err
	}
	s.lisp = lisp.New(&lisp.Options{Runner: runner, Memory: l.opts.Limits.Memory, Record: lispFile(l.dir), Logger: log})
	if s.snapshots, err = newSnapshots(l.dir, l.opts, l); err != nil {
		return nil, err
	}
	s.digest = l.m.newDigest(l.dir, l.opts, files)
	cache, err := rlm.OpenCache(filepath.Join(l.m.store.Path(), "operations"), 0)
	if err != nil { // results are then worked out each time
		log.Warn("open the cache of operations", "error", err)
	}
	s.texts, err = rlm.New(&rlm.Options{Files: files, Eval: engine, Cache: cache, Logger: log})
	return s, err
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

// newSnapshots opens the snapshots of a session. l is where its programs run; nil
// where that is another process.
func newSnapshots(dir *overlay.Dir, opts SessionOptions, l *local) (*snapshot.Store, error) {
	o := &snapshot.Options{Workspace: dir.Workspace(), Tmp: dir.Tmp(), Store: dir.Snapshots(), Lock: dir.Lock, Fsync: opts.Fsync}
	if l != nil {
		o.Quiesce, o.Activity = l.quiesce, l.activity
	}
	if user := dir.State().User; user != nil {
		o.Owner = &snapshot.Owner{UID: user.UID, GID: user.GID}
	}
	store, err := snapshot.New(o)
	if err != nil {
		return nil, err
	}
	// A restore that its process did not live to finish is finished now, before
	// any program sees the half of it.
	_, err = store.Recover(context.Background())
	return store, err
}

// wasmEngine is one for all sessions: it loads its module on first use.
func (m *Manager) wasmEngine() (*wasm.Engine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wasm != nil {
		return m.wasm, nil
	}
	opts := m.opts.Wasm
	engine, err := wasm.New(&opts)
	m.wasm = engine
	return engine, err
}

// newFiles opens the workspace of a session for the tools.
func newFiles(dir *overlay.Dir, opts SessionOptions) (*vfs.FS, error) {
	o := &vfs.Options{
		Root: dir.Workspace(), Tmp: dir.Tmp(), Lock: dir.Lock, ReadBeforeWrite: opts.ReadBeforeWrite, Fsync: opts.Fsync,
		VersionsFile: filepath.Join(sessionPath(dir), "versions.json"),
	}
	if user := dir.State().User; user != nil {
		o.Owner = &vfs.Owner{UID: user.UID, GID: user.GID}
	}
	if !opts.Kept { // nobody will come back to an ephemeral one
		o.VersionsFile = ""
	}
	return vfs.New(o)
}
