package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox/sandbox"
)

// Error is the error of every method of this package. Its text is fit for agents: it has the problem and
// what to do, no host paths and no text of Podman.
type Error struct {
	Kind  error  // sandbox.ErrUnavailable and its like, or a context's error
	Msg   string // a sentence
	Cause error  // what Podman or the system said, for logs; may be nil
}

func (e *Error) Error() string { return e.Kind.Error() + ": " + e.Msg }

// Unwrap makes errors.Is find both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

func fail(kind, cause error, format string, args ...any) *Error {
	return &Error{Kind: kind, Msg: fmt.Sprintf(format, args...), Cause: cause}
}

// apiError is an answer of the service that isn't a success.
type apiError struct {
	Status  int
	Message string
}

func (e *apiError) Error() string {
	return fmt.Sprintf("podman answered %d: %s", e.Status, e.Message)
}

// errHung is the cause of a context that the heartbeat cancelled.
var errHung = errors.New("podman's service does not answer")

func hasStatus(err error, status int) bool {
	var api *apiError
	return errors.As(err, &api) && api.Status == status
}

// isNotFound reports whether something doesn't exist. It also recognizes the answer for a container
// that is just being removed, which is a 500 with a special text.
func isNotFound(err error) bool {
	return hasStatus(err, http.StatusNotFound) || hasStatus(err, http.StatusInternalServerError) && says(err, "no such container")
}

func says(err error, words ...string) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error())
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// isTransient reports whether an error is known to pass within moments.
func isTransient(err error) bool {
	if _, ok := errors.AsType[*apiError](err); ok {
		return says(err, "database is locked", "resource busy", "resource temporarily unavailable", "ebusy")
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isRefused reports whether nobody listens, because the service is gone.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

func isTransport(err error) bool {
	var op *net.OpError
	return isRefused(err) || errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isBroken reports whether a service ended before its answer, or closed the connection.
func isBroken(err error) bool {
	var ours *Error
	return isTransport(err) && !errors.As(err, &ours) && !errors.Is(err, errHung)
}

// endedError is the error of a request whose service crashed.
type endedError struct {
	words string // the line of its log that says so
	cause error
}

func (e *endedError) Error() string {
	return fmt.Sprintf("podman's service ended: %s: %v", e.words, e.cause)
}
func (e *endedError) Unwrap() error { return e.cause }

// howToUnhang is advice for a service that doesn't answer.
const howToUnhang = "a podman command that hangs may hold a lock for which it waits: look for one with `ps -ef | grep podman` and end it, or end the service, which starts again; then repeat the command"

// explain returns the error of a request for a caller. doing describes the action, such as "create the
// container".
func explain(ctx context.Context, doing string, err error) error {
	var ours *Error
	var ended *endedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return err
	case errors.Is(err, errHung):
		return fail(sandbox.ErrUnavailable, err, "podman's service does not answer (%s); "+howToUnhang, doing)
	case ctx.Err() != nil:
		return fail(ctx.Err(), err, "could not %s in time", doing)
	case errors.Is(err, context.DeadlineExceeded):
		return fail(sandbox.ErrUnavailable, err, "podman took too long to %s", doing)
	case isAnswer(err) && says(err, "statfs ") && says(err, "no such file"):
		return fail(sandbox.ErrUnavailable, err, "podman's service does not see this host's files (%s); it must run on this machine, in the same mount namespace", doing)
	case says(err, "no space left", "enospc"):
		return fail(sandbox.ErrUnavailable, err, "podman's storage is full (%s); free some with `podman system prune`", doing)
	case says(err, "session key") && says(err, "quota exceeded"):
		return fail(sandbox.ErrUnavailable, err, "the kernel's keys are used up (%s); end sessions, or raise the sysctl kernel.keys.maxkeys", doing)
	case says(err, "allocating lock", "no locks", "lock is exhausted"):
		return fail(sandbox.ErrUnavailable, err, "podman has no locks left (%s); remove old containers, or raise num_locks", doing)
	case errors.As(err, &ended):
		return fail(sandbox.ErrUnavailable, err, "podman's service ended (%s): %s; try again, and see podman.log in wisbox's cache directory", doing, ended.words)
	case isTransport(err):
		return fail(sandbox.ErrUnavailable, err, "the connection to podman's service broke (%s); try again", doing)
	}
	return fail(sandbox.ErrUnavailable, err, "podman could not %s; `wisbox --debug` before the command shows its answer, and `wisbox doctor` checks the machine", doing)
}
