package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// makeDirs creates the content of a session's directory and pins the workspace.
func (d *Dir) makeDirs(owner *sandbox.Owner) (Pin, error) {
	for name, parent := range map[string]*os.Root{d.at(tmpDir): d.files(), snapshotsDir: d.dir, outputDir: d.dir} {
		dir, err := ensureDir(parent, name)
		if err != nil {
			return Pin{}, err
		}
		_ = dir.Close()
	}
	return d.makeWorkspace(workspaceDir, owner)
}

// makeWorkspace creates a directory that becomes the workspace. On a mounted image the pin has no device number, since
// it may change with each mount.
func (d *Dir) makeWorkspace(name string, owner *sandbox.Owner) (Pin, error) {
	if d.store.single {
		pin, err := d.adoptWorkspace(owner)
		pin.BootID = ""
		return pin, err
	}
	pin, err := makeWorkspace(d.dir, d.at(name), owner)
	if d.imaged {
		pin.BootID = ""
	}
	return pin, err
}

// makeWorkspace creates a directory that programs may see. It sets the owner and mode on its descriptor before anything
// else uses the directory.
func makeWorkspace(parent *os.Root, name string, owner *sandbox.Owner) (Pin, error) {
	if err := parent.Mkdir(name, 0o700); err != nil {
		return Pin{}, ioError(err, "make the workspace")
	}
	return giveWorkspace(parent, name, owner)
}

func giveWorkspace(parent *os.Root, name string, owner *sandbox.Owner) (Pin, error) {
	f, err := parent.Open(name)
	if err != nil {
		return Pin{}, ioError(err, "open the workspace")
	}
	defer f.Close()
	if owner != nil {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return Pin{}, answer.Errorf(answer.Permission, "the workspace can't be given to the user that programs run as; run as that user or as root").Because(err)
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
		field  **os.Root
		parent *os.Root
		name   string
	}{{&d.tmp, d.files(), d.at(tmpDir)}, {&d.output, d.dir, outputDir}, {&d.snapshots, d.dir, snapshotsDir}} {
		if *r.field, err = ensureDir(r.parent, r.name); err != nil {
			return err
		}
	}
	return d.openCounts()
}

// openCounts opens the directories to count. The descriptors stay usable even if programs change the modes.
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
		_ = f.Close() // nil at first, which is harmless
	}
	return nil
}

// looked returns the directories to count.
func (d *Dir) looked() (workspace, tmp *os.File) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[0], d.counts[1]
}

// openWorkspace also returns the identity of the opened directory, which can't be reused while it is open.
func (d *Dir) openWorkspace(state State) (*os.Root, fs.FileInfo, error) {
	info, err := d.files().Lstat(d.at(workspaceDir))
	if err != nil {
		return nil, nil, d.workspaceGone(err)
	}
	if !info.IsDir() || !state.pins(pinOf(info)) {
		return nil, nil, d.workspaceReplaced()
	}
	d.regain(info)
	root, err := d.files().OpenRoot(d.at(workspaceDir))
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

// regain restores the owner's rights on the workspace if a program removed them (chmod 0 /workspace): no later program
// could enter it to undo that. Programs can't write the parent directory.
func (d *Dir) regain(info fs.FileInfo) {
	if mode := info.Mode(); mode&0o700 != 0o700 {
		_ = d.files().Chmod(d.at(workspaceDir), mode|0o700) // otherwise the program that enters it reports the error
	}
}

// errNotOurs is the cause of an error which reports that the workspace is gone. Other errors may be temporary and don't
// cause a replacement.
var errNotOurs = errors.New("not the directory of the session's record")

// workspaceGone returns the error for a workspace that can't be opened.
func (d *Dir) workspaceGone(cause error) error {
	if !errors.Is(cause, fs.ErrNotExist) && !errors.Is(cause, syscall.ENOTDIR) && !errors.Is(cause, syscall.ELOOP) {
		return ioError(cause, "look at the workspace")
	}
	return answer.Errorf(answer.Unavailable, "the workspace of session %q was deleted on the host; reset the session, or remove it and create it again", d.id).
		In("session").Because(errors.Join(errNotOurs, cause))
}

func (d *Dir) workspaceReplaced() error {
	return answer.Errorf(answer.Unavailable, "the workspace of session %q was replaced on the host by something else; reset the session, or remove it and create it again", d.id).
		In("session").Because(errNotOurs)
}

// Check reports whether the session's workspace is still the directory that this
// Dir opened. The error is closed if the whole session is gone, and unavailable if the workspace was deleted, replaced
// (e.g. by a link), or recreated by another client; then [Dir.Remake] helps. If the owner lost the right to enter the
// workspace, Check restores it. Check takes microseconds.
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
		return answer.Errorf(answer.Closed, "session %q was deleted; create it again", d.id).In("session")
	case err != nil:
		return d.workspaceGone(err)
	}
	return d.workspaceReplaced()
}

// Remake gives the Dir a workspace again after an error of Check: the one that another client has made meanwhile, or
// else a new and empty one. A file in its place is moved to the trash. A container that has mounted the old one must be
// created again, and earlier results of Workspace are no longer usable.
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
// one is deleted. As with Remake, containers and earlier results of Workspace become unusable, also those of other
// clients, whose Check then returns an error.
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

// Next is a new workspace for a session, which keeps its old one until [Next.Place].
type Next struct {
	d      *Dir
	name   string
	pin    Pin
	root   *os.Root // nil for a session whose workspace can't be exchanged
	placed bool
}

// Prepare creates an empty workspace beside the session's. The caller may fill it before it places it, and calls Discard
// at the end in any case.
func (d *Dir) Prepare(ctx context.Context) (*Next, error) {
	if !d.isCurrent() {
		return nil, d.Check(ctx)
	}
	if d.store.single {
		return &Next{d: d}, nil
	}
	if d.imaged {
		if err := d.writable(); err != nil {
			return nil, err
		}
	}
	n := &Next{d: d, name: workspaceDir + "." + newID()}
	var err error
	if n.pin, err = d.makeWorkspace(n.name, d.State().User); err != nil {
		return nil, err
	}
	if err = d.joinQuota(d.at(n.name)); err == nil {
		n.root, err = d.files().OpenRoot(d.at(n.name))
	}
	if err != nil {
		n.Discard()
		return nil, ioError(err, "make the workspace")
	}
	return n, nil
}

// Root returns the new workspace, or nil if it exists only once it is placed.
func (n *Next) Root() *os.Root { return n.root }

// Place makes it the session's workspace, as [Dir.Reset] does with an empty one.
func (n *Next) Place(ctx context.Context) error {
	if !n.d.isCurrent() {
		return n.d.Check(ctx)
	}
	unlock, err := n.d.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if n.d.store.single {
		return n.d.emptyWorkspace(ctx)
	}
	n.placed = true // from here on it may be the session's, also after an error
	return n.d.place(ctx, n.name, n.pin)
}

// Discard frees it, and deletes it unless it was placed.
func (n *Next) Discard() {
	if n.root != nil {
		_ = n.root.Close()
		n.root = nil
	}
	if n.name == "" || n.placed {
		return
	}
	_ = n.d.removeOld(context.Background(), n.name) // otherwise the next open of the session deletes it
	n.name = ""
}

// replaceWorkspace creates a workspace under another name and exchanges the two.
func (d *Dir) replaceWorkspace(ctx context.Context) error {
	if d.store.single {
		return d.emptyWorkspace(ctx)
	}
	next := workspaceDir + "." + newID()
	pin, err := d.makeWorkspace(next, d.State().User)
	if err != nil {
		return err
	}
	if err := d.joinQuota(d.at(next)); err != nil {
		_ = d.dir.Remove(d.at(next))
		return ioError(err, "make the workspace")
	}
	return d.place(ctx, next, pin)
}

// place exchanges the workspace with a new one. The record names both meanwhile, so that the session opens after a crash
// at any point. The new files, and the exchange, are on the disk before the record relies on them.
func (d *Dir) place(ctx context.Context, next string, pin Pin) error {
	if err := d.Stored(); err != nil {
		_ = d.removeOld(ctx, next)
		return err
	}
	if err := d.Update(ctx, func(s *State) error { s.Next = &pin; return nil }); err != nil {
		_ = d.removeOld(ctx, next)
		return ioError(err, "make the workspace")
	}
	d.store.step("reset.recorded")
	if err := exchange(d.dir, d.at(next), d.at(workspaceDir)); err != nil {
		return ioError(err, "exchange the workspace")
	}
	d.store.step("reset.exchanged")
	if err := d.Stored(); err != nil {
		return err
	}
	if err := d.adopt(ctx, pin); err != nil {
		return err
	}
	return ioError(d.removeOld(ctx, next), "delete the old workspace")
}

// removeOld deletes a replaced workspace, in the background if that takes long. If the process ends first, the next
// open of the session deletes the rest.
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

// exchange atomically swaps two names in dir; if b is missing, a is renamed to b.
func exchange(dir *os.Root, a, b string) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	err = sys.Rename(fd, a, fd, b, sys.Exchange)
	if errors.Is(err, unix.ENOENT) {
		err = sys.Rename(fd, a, fd, b, sys.NoReplace)
	}
	return errors.Join(err, f.Sync())
}
