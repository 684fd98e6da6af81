package beneath

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool/answer"
)

// Errors for which the kernel has no code of its own.
var (
	ErrEscape     = errors.New("leaves the tree")
	ErrNotRegular = errors.New("is not a regular file")
	ErrIsDir      = errors.New("is a directory")
	ErrChanged    = errors.New("was changed meanwhile")
)

// errnoOf returns the errno of an os.Root error. os.Root's own refusal of a path that escapes has
// none.
func errnoOf(err error) error {
	if err == nil {
		return nil
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return errno
	}
	if errors.Is(err, fs.ErrClosed) {
		return err
	}
	return ErrEscape
}

var kinds = []struct {
	err  error
	kind answer.Kind
	says string
}{
	{ErrEscape, answer.Escape, "leads out of the workspace; use a path that stays in it"},
	{unix.EXDEV, answer.Escape, "leads out of the workspace; use a path that stays in it"},
	{ErrChanged, answer.Conflict, "was changed by a program during the call; read it again, then retry"},
	{ErrNotRegular, answer.NotRegular, "is not a regular file (a FIFO, a socket or a device)"},
	{errSocket, answer.NotRegular, "is not a regular file (a FIFO, a socket or a device)"},
	{unix.ENODEV, answer.NotRegular, "is not a regular file (a FIFO, a socket or a device)"},
	{unix.ELOOP, answer.NotRegular, "is a link that leads in a circle or over more than 40 links"},
	{ErrIsDir, answer.IsDir, "is a directory; a file is needed"},
	{unix.EISDIR, answer.IsDir, "is a directory; a file is needed"},
	{unix.ENOTDIR, answer.NotDir, "is a file, or lies below one; a directory is needed"},
	{unix.ENOENT, answer.NotFound, "does not exist; ls shows what does"},
	{unix.EEXIST, answer.Exists, "already exists"},
	{unix.ENOTEMPTY, answer.Busy, "is being filled by a program; stop it, then retry"},
	{unix.ENAMETOOLONG, answer.Invalid, "is too long for the file system"},
	{unix.EACCES, answer.Permission, "is not accessible: its mode or that of a parent forbids it"},
	{unix.EPERM, answer.Permission, "is not accessible: the file system forbids it"},
	{unix.EROFS, answer.Permission, "lies on a file system that can't be written"},
	{unix.ENOSPC, answer.NoSpace, "has no room: the disk of the session is full; delete files with the tool rm, or raise --disk (wisbox update), then retry"},
	{unix.EDQUOT, answer.NoSpace, "has no room: the disk of the session is full; delete files with the tool rm, or raise --disk (wisbox update), then retry"},
	{unix.EFBIG, answer.NoSpace, "is over the largest file that may be written here"},
	{unix.EMFILE, answer.Busy, "can't be opened now: too many files are open; retry"},
	{unix.ENFILE, answer.Busy, "can't be opened now: too many files are open; retry"},
	{unix.ETXTBSY, answer.Busy, "is being executed; retry when the program has ended"},
	{unix.EAGAIN, answer.Busy, "can't be opened: a program holds a lease on it (fcntl F_SETLEASE); end that program, or replace or remove the file"},
	{unix.EBUSY, answer.Busy, "is in use; retry"},
	{fs.ErrClosed, answer.Closed, "can't be reached: the session has ended"},
}

// Error describes to an agent why an operation on shown, the path that the agent may see, failed.
// It returns a *answer.Error in err's chain unchanged; unknown errors become internal. The cause is
// kept for logs.
func Error(err error, shown string) *answer.Error {
	if e := (*answer.Error)(nil); err == nil || errors.As(err, &e) {
		return e
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return answer.Errorf(k.kind, "%s %s", shown, k.says).Because(err)
		}
	}
	return answer.AsError(err)
}
