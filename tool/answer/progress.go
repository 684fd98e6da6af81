package answer

import (
	"context"
	"time"
)

type (
	progressKey struct{}
	pollKey     struct{}
	callerKey   struct{}
	clientKey   struct{}
)

// Waits begins the texts of a progress that say for what a call waits before it can do anything.
const Waits = "waiting for "

// WithProgress returns a context whose calls report their progress to report, such as
// the output so far. report must be quick and safe for concurrent use; each text
// replaces the one before.
func WithProgress(ctx context.Context, report func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress returns the function to which a call reports its progress, or nil.
func Progress(ctx context.Context) func(text string) {
	report, _ := ctx.Value(progressKey{}).(func(string))
	return report
}

// WithPolling returns a context whose caller would rather poll than wait longer than after. A
// call that supports it answers then, and continues in the background.
func WithPolling(ctx context.Context, after time.Duration) context.Context {
	return context.WithValue(ctx, pollKey{}, after)
}

// Polling returns how long a call may wait before it answers with a process to poll; 0 if the
// caller waits for the end.
func Polling(ctx context.Context) time.Duration {
	after, _ := ctx.Value(pollKey{}).(time.Duration)
	return after
}

// WithCaller returns a context with the name of the caller: a user, an agent, a client.
func WithCaller(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// WithClient returns a context with an identity of the client, of which several may have one name: for example a
// connection. It isn't recorded.
func WithClient(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, clientKey{}, id)
}

// Client returns the identity of the client, by default the name of the caller.
func Client(ctx context.Context) string {
	if id, _ := ctx.Value(clientKey{}).(string); id != "" {
		return id
	}
	return Caller(ctx)
}

// Caller returns the name of the caller, or "".
func Caller(ctx context.Context) string {
	who, _ := ctx.Value(callerKey{}).(string)
	return who
}
