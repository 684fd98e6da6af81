package tool

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/tool/answer"
)

// The types of results and errors are in package answer, so that programs without tools can link it alone.
type (
	Kind   = answer.Kind
	Error  = answer.Error
	Result = answer.Result
	Blob   = answer.Blob
	Change = answer.Change
)

// The kinds of errors, see package answer.
const (
	Invalid     = answer.Invalid
	NotFound    = answer.NotFound
	Exists      = answer.Exists
	IsDir       = answer.IsDir
	NotDir      = answer.NotDir
	NotRegular  = answer.NotRegular
	NotText     = answer.NotText
	Escape      = answer.Escape
	Permission  = answer.Permission
	TooLarge    = answer.TooLarge
	NoMatch     = answer.NoMatch
	Ambiguous   = answer.Ambiguous
	Conflict    = answer.Conflict
	Limit       = answer.Limit
	NoSpace     = answer.NoSpace
	Unsupported = answer.Unsupported
	Busy        = answer.Busy
	Timeout     = answer.Timeout
	Unavailable = answer.Unavailable
	Closed      = answer.Closed
	Internal    = answer.Internal
)

// MaxArguments is [answer.MaxArguments], Waits [answer.Waits].
const (
	MaxArguments = answer.MaxArguments
	Waits        = answer.Waits
)

// Kinds is [answer.Kinds].
func Kinds() []Kind { return answer.Kinds() }

// Errorf is [answer.Errorf].
func Errorf(kind Kind, format string, args ...any) *Error {
	return answer.Errorf(kind, format, args...)
}

// AsError is [answer.AsError].
func AsError(err error) *Error { return answer.AsError(err) }

// KindOf is [answer.KindOf].
func KindOf(err error) Kind { return answer.KindOf(err) }

// WithProgress is [answer.WithProgress].
func WithProgress(ctx context.Context, report func(text string)) context.Context {
	return answer.WithProgress(ctx, report)
}

// Progress is [answer.Progress].
func Progress(ctx context.Context) func(text string) { return answer.Progress(ctx) }

// WithPolling is [answer.WithPolling].
func WithPolling(ctx context.Context, after time.Duration) context.Context {
	return answer.WithPolling(ctx, after)
}

// Polling is [answer.Polling].
func Polling(ctx context.Context) time.Duration { return answer.Polling(ctx) }

// WithCaller is [answer.WithCaller].
func WithCaller(ctx context.Context, who string) context.Context { return answer.WithCaller(ctx, who) }

// Caller is [answer.Caller].
func Caller(ctx context.Context) string { return answer.Caller(ctx) }

// WithClient is [answer.WithClient].
func WithClient(ctx context.Context, id string) context.Context { return answer.WithClient(ctx, id) }

// Client is [answer.Client].
func Client(ctx context.Context) string { return answer.Client(ctx) }
