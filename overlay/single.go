package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// StoreOptions are options for opening a state root; nil works.
type StoreOptions struct {
	// Single limits the state root to one session, whose workspace is ROOT/workspace and whose staging is ROOT/tmp. It
	// is for environments such as a Pod, in which programs see that directory before a session exists. Resets and
	// removals empty the directory without replacing it.
	Single bool
}

// OpenStoreWith is [OpenStore] with options.
func OpenStoreWith(root string, opts *StoreOptions) (*Store, error) {
	s, err := OpenStore(root)
	if err != nil || opts == nil || !opts.Single {
		return s, err
	}
	s.single = true
	s.without = map[DiskWay]bool{DiskImage: true, DiskProject: true} // the volume belongs to others
	return s, nil
}

// files returns the directory that contains workspace/ and tmp/.
func (d *Dir) files() *os.Root {
	if d.store.single {
		return d.store.root
	}
	return d.dir
}

// claimSingle refuses a second session; the name of this one is claimed already.
func (s *Store) claimSingle(id string) error {
	if !s.single {
		return nil
	}
	all, err := names(s.sessions)
	if err != nil {
		return ioError(err, "look for other sessions")
	}
	for _, other := range all {
		if other != id {
			_ = s.sessions.Remove(id)
			return answer.Errorf(answer.Unsupported, "this place has one session, %q, and no room for another; open it elsewhere", other).In("name")
		}
	}
	return nil
}

// adoptWorkspace empties a directory that programs may already see, and sets its owner.
func (d *Dir) adoptWorkspace(owner *sandbox.Owner) (Pin, error) {
	if err := d.store.emptyFiles(context.Background()); err != nil {
		return Pin{}, err
	}
	return giveWorkspace(d.files(), workspaceDir, owner)
}

// emptyWorkspace resets the workspace in place.
func (d *Dir) emptyWorkspace(ctx context.Context) error {
	if err := d.store.emptyFiles(ctx); err != nil {
		return err
	}
	pin, err := giveWorkspace(d.files(), workspaceDir, d.State().User)
	if err != nil {
		return err
	}
	pin.BootID = ""
	return d.adopt(ctx, pin)
}

// hadFile stands in a single session's state root from the session's removal on.
const hadFile = "session-was"

// HadSession reports whether a session of the state root, which is opened with
// [StoreOptions.Single], was ready and has been removed since. One whose opening failed doesn't
// count.
func HadSession(root string) (bool, error) {
	_, err := os.Lstat(filepath.Join(root, hadFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// wasReady reports whether a claimed session was ever ready. The caller has not marked it as
// closing yet; one that a killed process has marked counts.
func (c *claim) wasReady() bool {
	if c.dir == nil || isHalfMade(c.dir) {
		return false
	}
	state, err := loadState(c.dir)
	return err != nil || state.Status != StateOpening
}

// endSingle empties the workspace of a single session that is being removed, and notes that there
// was a session.
func (s *Store) endSingle(ctx context.Context, wasReady bool) error {
	if !s.single {
		return nil
	}
	if err := s.emptyFiles(ctx); err != nil || !wasReady {
		return err
	}
	return ioError(s.root.WriteFile(hadFile, nil, 0o600), "note that there was a session")
}

// emptyFiles deletes everything in the workspace and the staging of a single session.
func (s *Store) emptyFiles(ctx context.Context) error {
	for _, name := range []string{workspaceDir, tmpDir} {
		if err := s.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return ioError(err, "make the workspace")
		}
		if err := emptyDir(ctx, s.root, name); err != nil {
			return ioError(err, "empty the workspace")
		}
	}
	return nil
}

func emptyDir(ctx context.Context, parent *os.Root, name string) error {
	dir, err := parent.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.Readdirnames(-1)
	for _, entry := range entries {
		_, removed := beneath.RemoveAllContext(ctx, dir, entry)
		err = errors.Join(err, removed)
	}
	return err
}

// singlePath returns the host path of a directory of a single session's files.
func (s *Store) singlePath(name string) string { return filepath.Join(s.path, name) }
