package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// makeDirs makes what a session's directory holds and pins the workspace.
func (d *Dir) makeDirs(owner *sandbox.Owner) (Pin, error) {
	for _, name := range []string{d.at(tmpDir), snapshotsDir, outputDir} {
		dir, err := ensureDir(d.dir, name)
		if err != nil {
			return Pin{}, err
		}
		_ = dir.Close()
	}
	return d.makeWorkspace(workspaceDir, owner)
}

// makeWorkspace makes a directory that becomes the workspace. A mount's device
// number may be another after each time that it is mounted, so there the pin
// leaves it out.
func (d *Dir) makeWorkspace(name string, owner *sandbox.Owner) (Pin, error) {
	pin, err := makeWorkspace(d.dir, d.at(name), owner)
	if d.imaged {
		pin.BootID = ""
	}
	return pin, err
}

// makeWorkspace makes a directory that programs may see, with its owner and mode
// set on its descriptor before anything else knows of it.
func makeWorkspace(parent *os.Root, name string, owner *sandbox.Owner) (Pin, error) {
	if err := parent.Mkdir(name, 0o700); err != nil {
		return Pin{}, ioError(err, "make the workspace")
	}
	f, err := parent.Open(name)
	if err != nil {
		return Pin{}, ioError(err, "open the workspace")
	}
	defer f.Close()
	if owner != nil {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return Pin{}, tool.Errorf(tool.Permission, "the workspace can't be given to the user that programs run as; run as that user or as root").Because(err)
		}
	}
	if err := f.Chmod(0o755); err != nil {
		return Pin{}, ioError(err, "set the workspace's mode")
	}
	info, err := f.Stat()
	if err != nil {
		return Pin{}, ioError(err, "look at the workspace")
	}
	return pinOf(info), nil
}

func pinOf(info fs.FileInfo) Pin {
	st := info.Sys().(*syscall.Stat_t)
	return Pin{Dev: uint64(st.Dev), Ino: st.Ino, BootID: bootID()}
}

// openRoots opens the session's directories; the workspace must be the pinned one.
func (d *Dir) openRoots() error {
	workspace, is, err := d.openWorkspace(d.state)
	if err != nil {
		return err
	}
	d.workspace, d.is = workspace, is
	for _, r := range []struct {
		field **os.Root
		name  string
	}{{&d.tmp, d.at(tmpDir)}, {&d.output, outputDir}, {&d.snapshots, snapshotsDir}} {
		if *r.field, err = ensureDir(d.dir, r.name); err != nil {
			return err
		}
	}
	return d.openCounts()
}

// openCounts opens what is counted. The descriptors stay good for that whatever
// programs make of the modes.
func (d *Dir) openCounts() error {
	dirs, err := d.fileDirs()
	if err != nil {
		return ioError(err, "open the session's files")
	}
	d.mu.Lock()
	old := d.counts
	d.counts = [2]*os.File(dirs)
	d.mu.Unlock()
	for _, f := range old {
		_ = f.Close() // nil at first, which is no harm
	}
	return nil
}

// looked gives what is counted.
func (d *Dir) looked() (workspace, tmp *os.File) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[0], d.counts[1]
}

// openWorkspace also reports what it opened, which nothing else can be while it is open.
func (d *Dir) openWorkspace(state State) (*os.Root, fs.FileInfo, error) {
	info, err := d.dir.Lstat(d.at(workspaceDir))
	if err != nil {
		return nil, nil, d.workspaceGone(err)
	}
	if !info.IsDir() || !state.pins(pinOf(info)) {
		return nil, nil, d.workspaceReplaced()
	}
	d.regain(info)
	root, err := d.dir.OpenRoot(d.at(workspaceDir))
	if err != nil {
		return nil, nil, d.workspaceGone(err)
	}
	now, err := root.Stat(".")
	if err != nil || !os.SameFile(now, info) {
		_ = root.Close()
		return nil, nil, d.workspaceReplaced()
	}
	return root, now, nil
}

// regain gives the owner the rights on the workspace that a program took away
// (chmod 0 /workspace): no later program could enter it to undo that. No program
// writes the directory that the name stands in.
func (d *Dir) regain(info fs.FileInfo) {
	if mode := info.Mode(); mode&0o700 != 0o700 {
		_ = d.dir.Chmod(d.at(workspaceDir), mode|0o700) // else the program that is to enter it says so
	}
}

// errNotOurs is behind an error that says that the workspace is gone. Any other
// error may pass: nothing is put in the workspace's place for it.
var errNotOurs = errors.New("not the directory of the session's record")

// workspaceGone says why the workspace can't be opened.
func (d *Dir) workspaceGone(cause error) error {
	if !errors.Is(cause, fs.ErrNotExist) && !errors.Is(cause, syscall.ENOTDIR) && !errors.Is(cause, syscall.ELOOP) {
		return ioError(cause, "look at the workspace")
	}
	return tool.Errorf(tool.Unavailable, "the workspace of session %q was deleted on the host; reset the session, or remove it and make it again", d.id).
		In("session").Because(errors.Join(errNotOurs, cause))
}

func (d *Dir) workspaceReplaced() error {
	return tool.Errorf(tool.Unavailable, "the workspace of session %q was replaced on the host by something else; reset the session, or remove it and make it again", d.id).
		In("session").Because(errNotOurs)
}

// Check says whether the session's workspace is still the directory that this
// Dir opened. It is closed where the whole session is gone, and unavailable
// where the workspace was deleted, replaced (by a link, say), or made anew by
// another client; [Dir.Remake] helps then. One that its owner may not enter any
// more is made so that he may again. It takes microseconds.
func (d *Dir) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := os.Lstat(d.WorkspacePath())
	d.mu.Lock()
	is := d.is
	d.mu.Unlock()
	switch {
	case err == nil && os.SameFile(info, is):
		d.regain(info)
		return nil
	case !d.isCurrent():
		return tool.Errorf(tool.Closed, "session %q was deleted; make it again", d.id).In("session")
	case err != nil:
		return d.workspaceGone(err)
	}
	return d.workspaceReplaced()
}

// Remake gives the Dir a workspace again where Check finds fault: the one that
// another client has made meanwhile, else a new and empty one. What stands in
// its place goes to the trash. A container that has the old one mounted must be
// made again, and what came from Workspace before is of no use any more.
func (d *Dir) Remake(ctx context.Context) error {
	if err := d.Check(ctx); !errors.Is(err, errNotOurs) {
		return err
	}
	unlock, err := d.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	state, err := d.Reload()
	if err != nil {
		return err
	}
	if err := d.mountDisk(ctx, state.Kept); err != nil {
		return err
	}
	root, is, err := d.openWorkspace(state)
	switch {
	case err == nil:
		d.swapRoot(root, is)
		return d.openCounts()
	case errors.Is(err, errNotOurs):
		return d.replaceWorkspace(ctx)
	}
	return err
}

// Reset empties the session's files by giving it a new, empty workspace; the old
// one is deleted. Like Remake it leaves containers and older roots behind, also
// those of other clients, whose Check then says so.
func (d *Dir) Reset(ctx context.Context) error {
	if !d.isCurrent() {
		return d.Check(ctx)
	}
	unlock, err := d.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return d.replaceWorkspace(ctx)
}

// replaceWorkspace makes a workspace under another name and exchanges the two.
// The record names both while that happens, so that a crash at any point leaves
// a session that opens.
func (d *Dir) replaceWorkspace(ctx context.Context) error {
	next := "workspace." + newID()
	pin, err := d.makeWorkspace(next, d.State().User)
	if err != nil {
		return err
	}
	err = d.joinQuota(d.at(next))
	if err == nil {
		err = d.Update(ctx, func(s *State) error { s.Next = &pin; return nil })
	}
	if err != nil {
		_ = d.dir.Remove(d.at(next))
		return ioError(err, "make the workspace")
	}
	d.store.step("reset.recorded")
	if err := exchange(d.dir, d.at(next), d.at(workspaceDir)); err != nil {
		return ioError(err, "exchange the workspace")
	}
	d.store.step("reset.exchanged")
	if err := d.adopt(ctx, pin); err != nil {
		return err
	}
	return ioError(d.removeOld(ctx, next), "delete the old workspace")
}

// removeOld deletes a workspace that was exchanged, in the background where that takes
// long. What the end of the process leaves of it goes when the session is next opened.
func (d *Dir) removeOld(ctx context.Context, name string) error {
	parent, err := d.dir.Open(filepath.Dir(d.at(name)))
	if err != nil {
		return err
	}
	defer parent.Close()
	_, err = d.later.Remove(ctx, parent, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

func (d *Dir) adopt(ctx context.Context, pin Pin) error {
	if err := d.Update(ctx, func(s *State) error { s.Workspace, s.Next = pin, nil; return nil }); err != nil {
		return err
	}
	root, is, err := d.openWorkspace(d.State())
	if err != nil {
		return err
	}
	d.swapRoot(root, is)
	return d.openCounts()
}

func (d *Dir) swapRoot(root *os.Root, is fs.FileInfo) {
	d.mu.Lock()
	old := d.workspace
	d.workspace, d.is = root, is
	d.mu.Unlock()
	_ = old.Close()
}

// exchange swaps two names of dir in one step; where b is missing, a becomes b.
func exchange(dir *os.Root, a, b string) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	err = unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Renameat2(fd, a, fd, b, unix.RENAME_NOREPLACE)
	}
	return errors.Join(err, f.Sync())
}
