package tool

import "context"

type progressKey struct{}

// WithProgress gives the calls under ctx somewhere to tell how far they are, the
// output so far for instance. report must be quick and safe for concurrent use;
// each text replaces the one before.
func WithProgress(ctx context.Context, report func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress is where a call tells how far it is; nil where nobody wants to know.
func Progress(ctx context.Context) func(text string) {
	report, _ := ctx.Value(progressKey{}).(func(string))
	return report
}
