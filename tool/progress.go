package tool

import (
	"context"
	"time"
)

type (
	progressKey struct{}
	pollKey     struct{}
	callerKey   struct{}
)

// WithProgress gives the calls under ctx somewhere to report how far they are, the
// output so far for instance. report must be quick and safe for concurrent use;
// each text replaces the one before.
func WithProgress(ctx context.Context, report func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress is where a call reports how far it is; nil where nobody wants to know.
func Progress(ctx context.Context) func(text string) {
	report, _ := ctx.Value(progressKey{}).(func(string))
	return report
}

// WithPolling says that the caller would rather poll than wait for longer than
// that: a call that can, answers then and goes on by itself.
func WithPolling(ctx context.Context, after time.Duration) context.Context {
	return context.WithValue(ctx, pollKey{}, after)
}

// Polling is how long a call may wait before it answers with something to poll; 0
// where the caller waits for the end.
func Polling(ctx context.Context) time.Duration {
	after, _ := ctx.Value(pollKey{}).(time.Duration)
	return after
}

// WithCaller names who makes the calls under ctx: a user, an agent, a client.
func WithCaller(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// Caller is who makes a call; empty where nobody said so.
func Caller(ctx context.Context) string {
	who, _ := ctx.Value(callerKey{}).(string)
	return who
}
