package wisbox

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/wisbox/wisbox/sandbox"
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

// programSpan begins the span of a program; the returned function ends it.
func programSpan(ctx context.Context) (context.Context, func(sandbox.Result)) {
	ctx, span := startSpan(ctx, "program")
	return ctx, func(res sandbox.Result) {
		span.SetAttributes(attribute.String("wisbox.verdict", string(res.Status)), attribute.Int("wisbox.exit_code", res.ExitCode))
		span.End()
	}
}

// outliving is what is to be told when a program ends that lives on after its
// call. An interpreter that a tool keeps for itself is none.
func outliving(ctx context.Context) (ended func(sandbox.Result)) {
	c := callOf(ctx)
	if c == nil || !c.lasting {
		return func(sandbox.Result) {}
	}
	_, end := programSpan(ctx)
	return func(res sandbox.Result) {
		end(res)
		if meter := c.s.m.opts.Meter; meter != nil && res.Status != "" {
			meter.Ended(string(res.Status))
		}
	}
}

// traceOf is the span of ctx for another process, traced is its inverse there.
func traceOf(ctx context.Context) map[string]string {
	out := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, out)
	return out
}

func traced(ctx context.Context, trace map[string]string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(trace))
}
