package beneath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
)

// laterWait is how long a caller waits for a removal. A file system takes a quarter of a minute to
// free 200,000 links.
var laterWait = patience.For(3 * time.Second)

// countDepth is the depth to which remaining entries are counted: each level needs a descriptor.
const countDepth = 100

// Later removes entries taken out of a tree, and continues in the background if that takes long.
// The zero value is ready; its methods may be called from many goroutines at once.
type Later struct {
	mu      sync.Mutex
	closed  bool
	stop    []context.CancelFunc
	working sync.WaitGroup
}

// Remove is like [RemoveAllContext] but returns after at most 3 s, plus the time for counting. It
// removes the rest in the next 2 minutes, or until Close. entries includes the rest, 100 levels
// deep. A sweep of the directory finds anything left.
func (l *Later) Remove(ctx context.Context, dir *os.File, name string) (entries int64, err error) {
	return l.remove(ctx, dir, name, laterWait)
}

func (l *Later) remove(ctx context.Context, dir *os.File, name string, wait time.Duration) (entries int64, err error) {
	soon, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	entries, err = RemoveAllContext(soon, dir, name)
	if err == nil || soon.Err() == nil || ctx.Err() != nil {
		return entries, err
	}
	entries += countBelow(int(dir.Fd()), name, countDepth) + 1
	return entries, l.Free(dir, name)
}

// Free removes names of dir in the background. dir stays the caller's.
func (l *Later) Free(dir *os.File, names ...string) error {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	own := os.NewFile(uintptr(fd), dir.Name())
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		cancel()
		return own.Close()
	}
	l.stop = append(l.stop, cancel)
	l.working.Go(func() {
		defer own.Close()
		defer cancel()
		for _, name := range names {
			_, _ = RemoveAllContext(ctx, own, name) // a sweep removes the rest
		}
	})
	return nil
}

// Close stops removals that run.
func (l *Later) Close() {
	l.mu.Lock()
	l.closed = true
	for _, cancel := range l.stop {
		cancel()
	}
	l.stop = nil
	l.mu.Unlock()
	l.working.Wait()
}

func countBelow(dir int, name string, depth int) (n int64) {
	fd, err := openWritable(dir, name)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var folders []string
	_ = ReadDir(fd, func(e Entry) bool {
		n++
		if e.Type == unix.DT_DIR {
			folders = append(folders, strings.Clone(e.Name))
		}
		return true
	})
	if depth == 0 {
		return n
	}
	for _, folder := range folders {
		n += countBelow(fd, folder, depth-1)
	}
	return n
}

// gone returns nil for the error of an entry that somebody else has removed.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
