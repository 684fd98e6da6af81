package beneath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/sys"
)

const (
	maxPending = 1_024 // subdirectories of one removal that wait at the top
	maxRounds  = 1_000 // times that a program may refill an emptied directory
)

// RemoveAll removes the entry name of dir and everything below it, at any depth and with any modes,
// and returns the number of removed entries. It follows no link, opens only directories and holds
// two descriptors: it moves a subdirectory that isn't empty to the top of the removal and empties
// it there. For a missing entry it returns fs.ErrNotExist. After an error, part of the tree is
// gone. It gives up after 2 minutes.
func RemoveAll(dir *os.File, name string) (entries int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	return RemoveAllContext(ctx, dir, name)
}

// removeTime bounds a removal that nobody waits for: a program that still has the directory may
// fill it as fast as it is emptied.
var removeTime = patience.For(2 * time.Minute)

// RemoveAllContext is like [RemoveAll] but ends early with ctx, because a program that creates
// files fast enough could otherwise hold it for ever.
func RemoveAllContext(ctx context.Context, dir *os.File, name string) (entries int64, err error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return 0, fs.ErrInvalid
	}
	r := &remover{ctx: ctx}
	for range maxRounds {
		err = r.remove(int(dir.Fd()), name)
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	return r.entries, err
}

type remover struct {
	ctx     context.Context
	top     int
	entries int64
	pending []string // non-empty subdirectories that lie at the top
	moved   int      // for fresh names
}

// remove removes one entry of dir. ENOTEMPTY means that a program has added something meanwhile.
func (r *remover) remove(dir int, name string) error {
	err := r.unlink(dir, name, 0)
	if err == nil || !isDir(err) {
		return err
	}
	if err := r.unlink(dir, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	top, err := openWritable(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	r.top = top
	if err := r.empty(); err != nil {
		return err
	}
	return r.unlink(dir, name, unix.AT_REMOVEDIR)
}

// empty empties the top until a whole pass finds nothing. ENOTEMPTY means that a program refills it
// again and again.
func (r *remover) empty() error {
	for range maxRounds {
		if err := r.sweep(r.top); err != nil {
			return err
		}
		if len(r.pending) == 0 {
			return nil
		}
		for len(r.pending) > 0 {
			if err := r.clearLast(); err != nil {
				return err
			}
		}
	}
	return unix.ENOTEMPTY
}

// clearLast empties the newest pending directory; the directories that it moves up come first.
func (r *remover) clearLast() error {
	at := len(r.pending) - 1
	name := r.pending[at]
	if err := r.sweepNamed(name); err != nil {
		return err
	}
	if len(r.pending) >= maxPending+at {
		return nil // it may hold more, in its own turn
	}
	r.pending = append(r.pending[:at], r.pending[at+1:]...)
	err := r.unlink(r.top, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOTEMPTY) {
		return nil // a program interfered; the next pass over the top finds the rest
	}
	return err
}

func (r *remover) sweepNamed(name string) error {
	fd, err := openWritable(r.top, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return r.sweep(fd)
}

// sweep removes everything except subdirectories that aren't empty. It leaves these pending at the
// top, at most maxPending at a time.
func (r *remover) sweep(dir int) error {
	if _, err := unix.Seek(dir, 0, 0); err != nil {
		return err
	}
	before, failed := len(r.pending), error(nil)
	err := ReadDir(dir, func(e Entry) bool {
		if failed = r.ctx.Err(); failed == nil {
			failed = r.take(dir, strings.Clone(e.Name), e.Type)
		}
		return failed == nil && len(r.pending)-before < maxPending
	})
	return errors.Join(failed, err)
}

func (r *remover) take(dir int, name string, kind uint8) error {
	flag := 0
	if kind == unix.DT_DIR {
		flag = unix.AT_REMOVEDIR
	}
	err := r.unlink(dir, name, flag)
	if errors.Is(err, unix.ENOTDIR) || isDir(err) { // swapped since it was listed
		err = r.unlink(dir, name, flag^unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return r.moveUp(dir, name)
	}
	return err
}

func (r *remover) moveUp(dir int, name string) error {
	if dir == r.top {
		r.pending = append(r.pending, name)
		return nil
	}
	r.moved++
	fresh := "wisbox-rm-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(r.moved)
	err := sys.Rename(dir, name, r.top, fresh, sys.NoReplace)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) { // its ".." is written too
		if fd, openErr := openWritable(dir, name); openErr == nil {
			_ = unix.Close(fd)
		}
		err = sys.Rename(dir, name, r.top, fresh, sys.NoReplace)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EEXIST):
		return r.moveUp(dir, name)
	case err != nil:
		return err
	}
	r.pending = append(r.pending, fresh)
	return nil
}

func (r *remover) unlink(dir int, name string, flag int) error {
	err := unix.Unlinkat(dir, name, flag)
	if err == nil {
		r.entries++
	}
	return err
}

func isDir(err error) bool { return errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) }

// openWritable opens a directory for listing and gives its owner all rights. If the mode forbids
// opening it, openWritable changes the mode through a descriptor of this very directory, whatever
// its name refers to by then.
func openWritable(dir int, name string) (int, error) {
	fd, err := OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.EACCES) {
		if err := allow(dir, name); err != nil {
			return -1, err
		}
		fd, err = OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(fd, uint32(st.Mode)&0o7777|0o700)
	}
	return fd, nil
}

func allow(dir int, name string) error {
	fd, err := OpenAt(dir, name, sys.Place|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return sys.Chmod(fd, 0o700)
}
