package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool/answer"
)

// Rename renames a kept session, which keeps its files, snapshots and log. It returns busy at once if anybody has the
// session open, or if hasSandbox (nil: false) reports a sandbox, which has the old name. It returns exists if the new
// name is taken, not_found for an unknown session, and unavailable if the session is paused or incomplete. On any error
// the session keeps its old name.
func (s *Store) Rename(ctx context.Context, id, to string, hasSandbox func(ctx context.Context, id string) (bool, error)) error {
	if err := s.checkRename(id, to); err != nil {
		return err
	}
	c, err := s.tryClaim(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notFound(id)
	case errors.Is(err, errInUse):
		return stopFirst(id)
	case err != nil:
		return ioError(err, "lock the session to rename it")
	}
	defer c.release()
	if err := s.checkRename(id, to); err != nil {
		return err
	}
	if hasSandbox != nil {
		switch has, err := hasSandbox(ctx, id); {
		case err != nil:
			return err
		case has:
			return stopFirst(id)
		}
	}
	return s.rename(c, to)
}

func stopFirst(id string) error {
	return answer.Errorf(answer.Busy, "session %q is in use; stop it first: wisbox stop %s", id, id).In("session")
}

// Alone calls do with the record of a session that nobody has open, and that nobody can open meanwhile. It doesn't call
// do if the session is in use or gone.
func (s *Store) Alone(id string, do func(State) error) error {
	c, err := s.tryClaim(id)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errInUse):
		return nil
	case err != nil:
		return ioError(err, "lock the session")
	}
	defer c.release()
	if c.dir == nil {
		return nil
	}
	state, err := loadState(c.dir)
	if err != nil {
		return lost(id, err)
	}
	return do(state)
}

// checkRename returns an error if a rename is impossible.
func (s *Store) checkRename(id, to string) error {
	for _, name := range []string{id, to} {
		if err := CheckID(name); err != nil {
			return err
		}
	}
	dir, err := s.openSession(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, err := s.sessions.Lstat(to); err == nil {
		return taken(to)
	}
	_, err = renamable(dir, id)
	return err
}

// rename renames a claimed session.
func (s *Store) rename(c *claim, to string) error {
	state, err := renamable(c.dir, c.id)
	if err != nil {
		return err
	}
	state.Renamed = to // from here on the record matches both names
	if err := saveState(c.dir, state); err != nil {
		return ioError(err, "write the session's record")
	}
	s.step("rename.noted")
	dir, err := s.sessions.Open(".")
	if err != nil {
		return ioError(err, "rename the session")
	}
	defer dir.Close()
	err = sys.Rename(int(dir.Fd()), c.id, int(dir.Fd()), to, sys.NoReplace)
	if errors.Is(err, unix.EEXIST) {
		return taken(to)
	}
	if err != nil {
		return ioError(err, "rename the session")
	}
	s.step("rename.renamed")
	// From here on, an error leaves a session with its new name and a record that matches it.
	_ = syncDir(s.sessions)
	state.of(to)
	_ = saveState(c.dir, state)
	return nil
}

// renamable returns the record of a session that can be renamed.
func renamable(dir *os.Root, id string) (State, error) {
	state, err := loadState(dir)
	switch {
	case answer.KindOf(err) == answer.Unsupported:
		return state, err
	case err != nil || !state.of(id):
		return state, lost(id, err)
	case !state.Kept:
		return state, answer.Errorf(answer.Unsupported, "session %q ends with the process that opened it; only kept sessions can be renamed", id).In("session")
	case state.Status == StatePaused:
		return state, answer.Errorf(answer.Unavailable, "session %q is paused; resume it first: wisbox resume %s", id, id).In("session")
	case state.Status != StateReady:
		return state, answer.Errorf(answer.Unavailable, "session %q is being made or removed; wait, or remove it", id).In("session")
	}
	return state, nil
}

// of reports whether the record belongs to the session of that name, and then sets the name: after an interrupted
// rename the record matches both the old name and the new one.
func (s *State) of(name string) bool {
	if s.ID != name && s.Renamed != name {
		return false
	}
	s.ID, s.Renamed = name, ""
	return true
}
