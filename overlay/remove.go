package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/patience"
)

var errInUse = errors.New("the session is in use")

// claim is a session that only its holder can open.
type claim struct {
	id   string
	dir  *os.Root // nil if it is not a directory
	life *flock.Flock
}

func (c *claim) release() {
	if c.dir != nil {
		_ = c.life.Unlock()
		_ = c.dir.Close()
	}
}

type takeLock func(*flock.Flock) error

// claimWith locks the session of a name exclusively. fs.ErrNotExist is passed on.
func (s *Store) claimWith(id string, take takeLock) (*claim, error) {
	info, err := s.sessions.Lstat(id)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() { // nobody can have it open
		return &claim{id: id}, nil
	}
	dir, err := s.sessions.OpenRoot(id)
	if err != nil {
		return nil, err
	}
	c := &claim{id: id, dir: dir, life: flock.New(filepath.Join(s.path, sessionsDir, id, lifeLock))}
	if err := take(c.life); err != nil {
		c.release()
		return nil, err
	}
	now, err := s.sessions.Lstat(id)
	if err != nil || !os.SameFile(info, now) {
		c.release()
		return nil, fs.ErrNotExist
	}
	return c, nil
}

// tryClaim claims a session at once or returns errInUse.
func (s *Store) tryClaim(id string) (*claim, error) {
	return s.claimWith(id, func(life *flock.Flock) error {
		ok, err := life.TryLock()
		if err == nil && !ok {
			return errInUse
		}
		return err
	})
}

// claim waits at most 5 s for the session's clients to leave.
func (s *Store) claim(ctx context.Context, id string) (*claim, error) {
	return s.claimWith(id, func(life *flock.Flock) error {
		return acquire(ctx, life.TryLockContext, "the session is in use by another client; close it there and try again")
	})
}

// Remove deletes a session and all its files, regardless of their modes. It waits at most 5 s for clients to leave,
// then the error is busy. It completes an interrupted removal; for an unknown name the error is not_found.
func (s *Store) Remove(ctx context.Context, id string) error {
	return s.RemoveWith(ctx, id, nil)
}

// RemoveWith is like [Store.Remove], but calls before, if it isn't nil, once nobody can open the session any more and
// while its files still exist, e.g. to remove its container. If before fails, the session stays, marked as closing, and
// another Remove or sweep continues.
func (s *Store) RemoveWith(ctx context.Context, id string, before func(ctx context.Context, id string) error) error {
	if err := CheckID(id); err != nil {
		return err
	}
	c, err := s.claim(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return s.emptyTrashOf(ctx, id)
	}
	if err != nil {
		return ioError(err, "lock the session to remove it")
	}
	entry, err := s.bury(ctx, c, before)
	if err != nil {
		return err
	}
	return ioError(s.shred(ctx, entry), "delete the session's files")
}

// bury moves a claimed session to the trash and ends the claim.
func (s *Store) bury(ctx context.Context, c *claim, before func(context.Context, string) error) (entry string, err error) {
	defer c.release()
	ready := s.single && c.wasReady()
	if c.dir != nil {
		s.markClosing(c)
	}
	s.step("remove.marked")
	if before != nil {
		if err := before(ctx, c.id); err != nil {
			return "", err
		}
	}
	if err := s.endSingle(ctx, ready); err != nil {
		return "", err
	}
	s.step("remove.before")
	entry, err = s.toTrash(sessionsDir+"/"+c.id, c.id)
	s.step("remove.buried")
	return entry, ioError(err, "remove the session")
}

// markClosing records the removal if possible: on a full disk or with a damaged record the removal must still continue.
func (s *Store) markClosing(c *claim) {
	state, err := loadState(c.dir)
	if err != nil {
		return
	}
	freeQuota(c.dir, state)
	if state.Status == StateClosing {
		return
	}
	state.Status = StateClosing
	_ = saveState(c.dir, state)
}

// toTrash moves a path below the state root to the trash.
func (s *Store) toTrash(path, id string) (entry string, err error) {
	entry = id + "." + newID()
	if err := s.root.Rename(path, trashDir+"/"+entry); err != nil {
		return "", err
	}
	return entry, errors.Join(syncDir(s.sessions), syncDir(s.trash))
}

// discard moves a path to the trash and deletes it.
func (s *Store) discard(ctx context.Context, path, id string) error {
	entry, err := s.toTrash(path, id)
	if err != nil {
		return err
	}
	return s.shred(ctx, entry)
}

// shred deletes an entry of the trash. Two processes may do so at once and cause errors for each other: it succeeds if
// the entry is gone in the end. If ctx ends, the rest stays in the trash for another Remove or sweep.
func (s *Store) shred(ctx context.Context, entry string) error {
	dir, err := s.trash.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := s.unmountDisk(ctx, entry); err != nil {
		return err
	}
	s.step("remove.unmounted")
	for range 5 {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err = beneath.RemoveAllContext(ctx, dir, entry)
		if _, gone := s.trash.Lstat(entry); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// emptyTrashOf finishes interrupted removals of a name that is not a session.
func (s *Store) emptyTrashOf(ctx context.Context, id string) error {
	entries, err := names(s.trash)
	if err != nil {
		return ioError(err, "look for the session in the trash")
	}
	found := false
	var errs []error
	for _, entry := range entries {
		if trashedID(entry) == id {
			found = true
			errs = append(errs, s.shred(ctx, entry))
		}
	}
	if !found {
		return notFound(id)
	}
	return ioError(errors.Join(errs...), "delete the session's files")
}

func trashedID(entry string) string {
	id, _, _ := strings.Cut(entry, ".")
	return id
}

// clearTmp deletes leftovers in tmp/, and workspaces that a killed Reset left. The caller has exclusive use of the
// session. It takes at most 6 s; the rest only takes room, and is deleted another time.
func (d *Dir) clearTmp() {
	clearLeftovers(d.dir)
	if d.store.single {
		ctx, cancel := context.WithTimeout(context.Background(), clearTime)
		defer cancel()
		_ = emptyDir(ctx, d.store.root, tmpDir)
	}
}

func clearLeftovers(session *os.Root) {
	clearBelow(session, ".")
	clearBelow(session, diskDir)
}

// clearTime bounds the clearing of one directory, because an open of the session waits for it.
var clearTime = patience.For(3 * time.Second)

func clearBelow(session *os.Root, place string) {
	ctx, cancel := context.WithTimeout(context.Background(), clearTime)
	defer cancel()
	if tmp, err := session.Open(place + "/" + tmpDir); err == nil {
		defer tmp.Close()
		entries, _ := tmp.Readdirnames(-1)
		for _, name := range entries {
			_, _ = beneath.RemoveAllContext(ctx, tmp, name)
		}
	}
	dir, err := session.Open(place)
	if err != nil {
		return
	}
	defer dir.Close()
	entries, _ := dir.Readdirnames(-1)
	for _, name := range entries {
		if strings.HasPrefix(name, workspaceDir+".") || strings.HasSuffix(name, ".new") {
			_, _ = beneath.RemoveAllContext(ctx, dir, name)
		}
	}
}

// isHalfMade reports whether the creator of a session without a record was killed before it was complete: then its
// workspace is empty. It returns false for a named image that is not mounted, since that can't be examined.
func isHalfMade(session *os.Root) bool {
	if _, err := session.Lstat(stateFile); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return hasNothing(session, workspaceDir) && hasNothing(session, diskDir+"/"+workspaceDir) && !hasUnmountedImage(session)
}

func hasUnmountedImage(session *os.Root) bool {
	_, image := session.Lstat(imageFile)
	_, workspace := session.Lstat(diskDir + "/" + workspaceDir)
	return image == nil && workspace != nil
}

func hasNothing(session *os.Root, name string) bool {
	workspace, err := session.Open(name)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer workspace.Close()
	entries, err := workspace.Readdirnames(1)
	return len(entries) == 0 && err != nil
}
