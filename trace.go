package wisbox

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// tracerName is the scope of our spans.
const tracerName = "github.com/wisbox/wisbox"

// startSpan begins a span below the one of ctx, if the call of ctx is traced;
// else it gives one that does nothing.
func startSpan(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	c := callOf(ctx)
	if c == nil || c.s.m.opts.TracerProvider == nil {
		return ctx, trace.SpanFromContext(context.Background())
	}
	tracer := c.s.m.opts.TracerProvider.Tracer(tracerName)
	return tracer.Start(ctx, "wisbox "+name, trace.WithAttributes(attributes...))
}

// endSpan ends a call's span with what its event tells.
func endSpan(span trace.Span, e Event) {
	span.SetAttributes(attribute.String("wisbox.outcome", e.Outcome))
	if e.Verdict != "" {
		span.SetAttributes(attribute.String("wisbox.verdict", e.Verdict))
	}
	if e.Outcome != "ok" && e.Outcome != "failed" {
		span.SetStatus(codes.Error, e.Message)
	}
	span.End()
}
