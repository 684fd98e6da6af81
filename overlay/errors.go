package overlay

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/wisbox/wisbox/tool/answer"
)

// ioError returns the error of a failed system call with a kind that an agent can act on. what describes the operation
// without a host path: "make the session's directory".
func ioError(err error, what string) error {
	var te *answer.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &te), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return answer.Errorf(answer.NoSpace, "%s: the file system of the state directory is full; free some space and try again", what).Because(err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return answer.Errorf(answer.Permission, "%s: the state directory can't be written; make it writable or set WISBOX_CACHE to another one", what).Because(err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return answer.Errorf(answer.Limit, "%s: there are too many open files; close some sessions and try again", what).Because(err)
	}
	return answer.Errorf(answer.Unavailable, "%s: the state directory failed; set WISBOX_CACHE to another one; `wisbox --debug` before the command shows the cause", what).Because(err)
}

func taken(id string) error {
	return answer.Errorf(answer.Exists, "session %q already exists; use it, remove it, or choose another name", id).In("session")
}

func notFound(id string) error {
	return answer.Errorf(answer.NotFound, "session %q not found; list the sessions to see their names", id).In("session")
}
