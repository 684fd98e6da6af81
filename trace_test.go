package wisbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

// spans is a tracer provider that keeps ended spans.
type spans struct {
	noop.TracerProvider
	mu    sync.Mutex
	ended []*span
}

type span struct {
	noop.Span
	to           *spans
	name, parent string
	above        trace.SpanContext // of another process
	attributes   map[attribute.Key]string
	status       codes.Code
}

type tracer struct {
	noop.Tracer
	to *spans
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{to: s} }

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{to: t.to, name: name, attributes: map[attribute.Key]string{}}
	if p, ok := trace.SpanFromContext(ctx).(*span); ok {
		s.parent = p.name
	} else {
		s.above = trace.SpanContextFromContext(ctx)
	}
	c := trace.NewSpanStartConfig(opts...)
	s.SetAttributes(c.Attributes()...)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		s.attributes[a.Key] = a.Value.Emit()
	}
}

func (s *span) SetStatus(c codes.Code, _ string) { s.status = c }

func (s *span) End(...trace.SpanEndOption) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.to.ended = append(s.to.ended, s)
}

// below reports whether a span of that name has ended whose parent is a span of another process.
func (s *spans) below(above trace.SpanContext, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.ended, func(sp *span) bool {
		return sp.name == name && sp.above.TraceID() == above.TraceID() && sp.above.SpanID() == above.SpanID()
	})
}

func (s *spans) take() []*span {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.ended
	s.ended = nil
	return all
}

func TestACallItsContainerAndItsProgramAreSpans(t *testing.T) {
	rec := &spans{}
	m, _ := manager(t, wisbox.Options{TracerProvider: rec})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	ctx, parent := tracer{to: rec}.Start(t.Context(), "the embedder's own")
	_, err = s.Call(ctx, "shell_execute", []byte(`{"commands":["true"]}`))
	require.NoError(t, err)
	got := rec.take()
	require.Len(t, got, 3)
	var names [][2]string
	for _, sp := range got {
		names = append(names, [2]string{sp.name, sp.parent})
	}
	assert.Equal(t, [][2]string{
		{"wisbox container", "wisbox shell_execute"}, {"wisbox program", "wisbox shell_execute"}, {"wisbox shell_execute", "the embedder's own"},
	}, names)
	assert.Equal(t, "exited", got[1].attributes["wisbox.verdict"])
	assert.Equal(t, "ok", got[2].attributes["wisbox.outcome"])
	assert.Equal(t, s.ID(), got[2].attributes["wisbox.session"])
	assert.Equal(t, codes.Unset, got[2].status)

	_, err = s.Call(ctx, "read_file", []byte(`{"file_path":"nosuch"}`))
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	got = rec.take()
	require.Len(t, got, 1)
	assert.Equal(t, codes.Error, got[0].status)
	parent.End()
}

// A span in the caller's context doesn't enable spans of ours.
func TestWithoutAProviderNothingIsTraced(t *testing.T) {
	rec := &spans{}
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	ctx, _ := tracer{to: rec}.Start(t.Context(), "the embedder's own")
	_, err = s.Call(ctx, "shell_execute", []byte(`{"commands":["true"]}`))
	require.NoError(t, err)
	assert.Empty(t, rec.take())
}
