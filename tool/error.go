package tool

import (
	"context"
	"errors"
	"fmt"
)

// Kind classifies an error. The set is closed: callers may switch over it.
type Kind string

// The kinds, all of them (docs/tools.md).
const (
	Invalid     Kind = "invalid"     // an argument breaks a rule
	NotFound    Kind = "not_found"   // nothing of that name
	Exists      Kind = "exists"      // something of that name already
	IsDir       Kind = "is_dir"      // a directory where a file is needed
	NotDir      Kind = "not_dir"     // a file where a directory is needed
	NotRegular  Kind = "not_regular" // FIFO, socket, device, link loop
	NotText     Kind = "not_text"    // bytes that are not UTF-8
	Escape      Kind = "escape"      // would leave the workspace
	Permission  Kind = "permission"  // the file system says no
	TooLarge    Kind = "too_large"   // content over a length limit
	NoMatch     Kind = "no_match"    // nothing to replace
	Ambiguous   Kind = "ambiguous"   // several places to replace
	Conflict    Kind = "conflict"    // changed, or not read, since
	Limit       Kind = "limit"       // a count, byte or process limit
	NoSpace     Kind = "no_space"    // no room on the file system
	Unsupported Kind = "unsupported" // a feature that is not there
	Busy        Kind = "busy"        // another call holds the lock
	Timeout     Kind = "timeout"     // wisbox's own deadline passed
	Unavailable Kind = "unavailable" // Podman, an image or a runtime is not there
	Closed      Kind = "closed"      // the session has ended
	Internal    Kind = "internal"    // a defect of wisbox
)

// Kinds lists every Kind in the order of docs/tools.md.
func Kinds() []Kind {
	return []Kind{
		Invalid, NotFound, Exists, IsDir, NotDir, NotRegular, NotText, Escape, Permission, TooLarge, NoMatch,
		Ambiguous, Conflict, Limit, NoSpace, Unsupported, Busy, Timeout, Unavailable, Closed, Internal,
	}
}

// Error is what a tool answers when the arguments are bad, the state forbids
// the call, or wisbox itself failed. What a program did is never an Error.
//
// Message is for an agent: it names the field and the limit, says what to do
// next, and holds no host path outside the workspace, no environment value and
// no file content. The cause is for logs only and is never shown to an agent.
type Error struct {
	Kind    Kind   `json:"kind"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`

	cause error
}

// Errorf makes an Error. A %w in the format keeps its operand as the cause and
// prints it: use it for errors whose text is fit for an agent, else [Error.Because].
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), cause: errors.Unwrap(err)}
}

// In names the parameter that is at fault and returns e.
func (e *Error) In(field string) *Error {
	e.Field = field
	return e
}

// Because keeps err as the cause, for logs, and returns e.
func (e *Error) Because(err error) *Error {
	e.cause = err
	return e
}

// Error renders "kind: message", the form that every surface shows.
func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// AsError turns any error into an *Error: one in its chain, a context's end, or
// kind internal with the original kept as the cause and its text hidden.
// It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(Timeout, "the call's deadline passed; try again with more time").Because(err)
	case errors.Is(err, context.Canceled):
		return Errorf(Closed, "the caller cancelled the call").Because(err)
	}
	return Errorf(Internal, "wisbox failed in a way that it did not expect; the session's log says more").Because(err)
}

// KindOf is the kind of err, or "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return AsError(err).Kind
}
