package answer

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
	NotFound    Kind = "not_found"   // nothing has that name
	Exists      Kind = "exists"      // something already has that name
	IsDir       Kind = "is_dir"      // a directory where a file is needed
	NotDir      Kind = "not_dir"     // a file where a directory is needed
	NotRegular  Kind = "not_regular" // a FIFO, socket, device or loop of links
	NotText     Kind = "not_text"    // bytes that are not UTF-8
	Escape      Kind = "escape"      // would leave the workspace
	Permission  Kind = "permission"  // the file system refuses access
	TooLarge    Kind = "too_large"   // content over a length limit
	NoMatch     Kind = "no_match"    // nothing to replace
	Ambiguous   Kind = "ambiguous"   // several places to replace
	Conflict    Kind = "conflict"    // changed since it was read, or not read
	Limit       Kind = "limit"       // a count, byte or process limit
	NoSpace     Kind = "no_space"    // no room on the file system
	Unsupported Kind = "unsupported" // a feature that this wisbox or host lacks
	Busy        Kind = "busy"        // another call holds the lock
	Timeout     Kind = "timeout"     // wisbox's own deadline passed
	Unavailable Kind = "unavailable" // Podman, an image or a runtime is missing
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

// Error is the answer of a tool whose arguments are invalid, that can't run in the current
// state, or that failed because of wisbox itself. The failure of a program is never an Error.
//
// Message is for an agent: it names the field and the limit, advises what to do next, and has
// no host path outside the workspace, no environment value and no file content. The cause is
// only for logs; an agent never sees it.
type Error struct {
	Kind    Kind   `json:"kind"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`

	cause error
}

// Errorf returns an Error. A %w in the format prints its operand and keeps it as the cause: use
// it only for errors whose text is fit for an agent, otherwise use [Error.Because].
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), cause: errors.Unwrap(err)}
}

// In sets the parameter that caused the error, and returns e.
func (e *Error) In(field string) *Error {
	e.Field = field
	return e
}

// Because sets the cause, for logs, and returns e.
func (e *Error) Because(err error) *Error {
	e.cause = err
	return e
}

// Error returns "kind: message", the form that every surface shows.
func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// AsError turns any error into an *Error: the one in its chain, or an error for the end of a
// context, or else one of kind internal, which hides the text of the original but keeps it as
// the cause. It returns nil for nil.
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

// KindOf returns the kind of err, or "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return AsError(err).Kind
}
