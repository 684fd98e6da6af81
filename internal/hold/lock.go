package hold

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// The owner of a holder's lock removes the lock's file at its end. So a lock counts only while its
// file is the one at its path: a process that waited for a removed file tries again with the new one.

const lockEvery = 10 * time.Millisecond

// awaitLock takes a holder's lock, or returns nil if another holder listens. A holder that doesn't
// listen yet will soon; one that no longer listens is ending, or is dead and the kernel hasn't
// closed all its files yet.
func awaitLock(ctx context.Context, path string) (*flock.Flock, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	lock := flock.New(path + ".lock")
	for {
		ok, err := lock.TryLock()
		switch {
		case ok && isAt(lock, path+".lock"):
			return lock, nil
		case err != nil, !ok && listens(path):
			return nil, errors.Join(err, lock.Close())
		case ok: // its file was removed
			_ = lock.Close()
			lock = flock.New(path + ".lock")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), lock.Close())
		case <-time.After(lockEvery):
		}
	}
}

func isAt(lock *flock.Flock, path string) bool {
	held, err := lock.Stat()
	there, thereErr := os.Lstat(path)
	return err == nil && thereErr == nil && os.SameFile(held, there)
}

// releaseLock removes a holder's files at path and releases its lock.
func releaseLock(lock *flock.Flock, path string) {
	_ = os.Remove(path)
	_ = os.Remove(path + ".lock")
	_ = lock.Close()
}

// sweepLocks removes the files beside path that killed holders left behind.
func sweepLocks(path string) {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "hold-*.lock"))
	for _, file := range left {
		other := strings.TrimSuffix(file, ".lock")
		if other == path {
			continue
		}
		lock := flock.New(file)
		if ok, err := lock.TryLock(); err == nil && ok && isAt(lock, file) {
			releaseLock(lock, other)
			continue
		}
		_ = lock.Close()
	}
}
