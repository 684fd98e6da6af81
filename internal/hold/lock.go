package hold

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/tool/answer"
)

// A holder's socket and its lock are files in the session's own directory: whoever has the session finds its holder,
// whatever the login or unit. The lock's file stays. It counts only while it is the one at its path: the directory may
// have been removed, and another session may have its name.
//
// Once a holder listens, the lock's file names its process and the inode of its socket. So others can see that a holder
// has lost its socket, in contrast to one that starts, which has no such line, and to one that ends, which removes the
// socket last.
const (
	socketName = "hold.sock"
	lockName   = "hold.lock"
	lifeName   = "life.lock" // of package overlay: whoever has the session open has it
)

const lockEvery = 10 * time.Millisecond

// awaitLock takes the lock of a session's holder, or returns nil if another holder listens. A holder that doesn't listen
// yet will soon; one that no longer listens is ending, or is dead and the kernel hasn't closed all its files yet; one
// that has lost its socket is killed.
func (r Root) awaitLock(ctx context.Context, name string) (*flock.Flock, error) {
	dir, err := r.dir(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		lock := flock.New(filepath.Join(dir, lockName))
		ok, err := lock.TryLock()
		switch {
		case err != nil:
			return nil, err
		case ok && isCurrent(lock):
			return lock, os.Truncate(lock.Path(), 0)
		}
		_ = lock.Close()
		if pid, lost := lostSocket(dir); lost && !ok {
			r.endUnreachable(ctx, pid, name)
		} else if !ok && listens(dir) {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockEvery):
		}
	}
}

// isCurrent reports whether the lock's file is still the one at its path.
func isCurrent(lock *flock.Flock) bool {
	held, err := lock.Stat()
	there, thereErr := os.Lstat(lock.Path())
	return err == nil && thereErr == nil && os.SameFile(held, there)
}

// lostSocket reports whether a holder that listens can't be reached, because its socket was removed or replaced, and
// returns its process.
func lostSocket(dir string) (pid int, lost bool) {
	line, err := os.ReadFile(filepath.Join(dir, lockName))
	var inode uint64
	if _, scanErr := fmt.Sscanf(string(line), "%d %d\n", &pid, &inode); err != nil || scanErr != nil {
		return 0, false
	}
	now, err := inodeOf(filepath.Join(dir, socketName))
	return pid, err != nil || now != inode
}

func inodeOf(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return st.Ino, err
}

// atSocket calls use with a path of the socket in a session's directory that fits into an address, as few paths of
// state directories do with certainty: a long one leads through the open directory.
func atSocket(dir string, use func(path string) error) error {
	path := filepath.Join(dir, socketName)
	if len(path) <= rundir.MaxSocketPath {
		return use(path)
	}
	open, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer open.Close()
	return use(filepath.Join(through(open), socketName))
}

// dir returns a session's directory.
func (r Root) dir(name string) (string, error) {
	if name == "." || !filepath.IsLocal(name) || filepath.Base(name) != name {
		return "", errNoSession(name)
	}
	return filepath.Join(r.CacheDir, "sessions", name), nil
}

func errNoSession(name string) error {
	return answer.Errorf(answer.NotFound, "session %q not found; list the sessions to see their names", name).In("session").Because(os.ErrNotExist)
}
