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
)

const (
	maxPending = 1_024 // subdirectories of one removal that wait at the top
	maxRounds  = 1_000 // times that a program may fill again what we have emptied
)

// RemoveAll removes the entry name of dir and all below it, whatever its depth
// and modes, and counts the entries removed. It follows no link, opens nothing
// but directories and holds two descriptors: a subdirectory that is not empty is
// moved up to the top of the removal and emptied from there. A missing entry is
// fs.ErrNotExist. After an error part of the tree is gone. It ends after 2 minutes.
func RemoveAll(dir *os.File, name string) (entries int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	return RemoveAllContext(ctx, dir, name)
}

// removeTime bounds a removal that nobody waits for: a program that still stands in
// the directory fills it as fast as it is emptied.
const removeTime = 2 * time.Minute

// RemoveAllContext is [RemoveAll] that ends early with ctx: a program that
// creates files as fast as they go could otherwise hold it for ever.
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

// remove takes one entry of dir away. ENOTEMPTY says that a program put
// something in meanwhile.
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

// empty clears the top until a whole look at it finds nothing. ENOTEMPTY says that a
// program fills it again and again.
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

// clearLast empties the newest pending directory; what it moves up comes first.
func (r *remover) clearLast() error {
	at := len(r.pending) - 1
	name := r.pending[at]
	if err := r.sweepNamed(name); err != nil {
		return err
	}
	if len(r.pending) >= maxPending+at {
		return nil // it may hold more: its own turn comes again
	}
	r.pending = append(r.pending[:at], r.pending[at+1:]...)
	err := r.unlink(r.top, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOTEMPTY) {
		return nil // a program was here; the next look at the top finds what there is
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

// sweep removes all but the subdirectories that aren't empty; these it leaves
// pending at the top, at most maxPending in one go.
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
	err := unix.Renameat2(dir, name, r.top, fresh, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) { // its ".." is written too
		if fd, openErr := openWritable(dir, name); openErr == nil {
			_ = unix.Close(fd)
		}
		err = unix.Renameat2(dir, name, r.top, fresh, unix.RENAME_NOREPLACE)
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

// openWritable opens a directory for listing and gives its owner all rights on
// it. A mode that forbids the opening is changed through a descriptor that
// stands for the very directory, whatever its name means by then.
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
		_ = unix.Fchmod(fd, st.Mode&0o7777|0o700)
	}
	return fd, nil
}

func allow(dir int, name string) error {
	fd, err := OpenAt(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmodat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), 0o700, 0)
}
