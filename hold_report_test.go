package wisbox_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// tally is a Meter whose counters can be read.
type tally struct {
	mu    sync.Mutex
	calls int
	ended []string
}

func (m *tally) Call(wisbox.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
}

func (m *tally) Ended(verdict string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, verdict)
}

func (m *tally) Report(w io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := fmt.Fprintf(w, "%d calls, %d ended", m.calls, len(m.ended))
	return err
}

func (m *tally) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.ended...)
}

func TestAHolderTellsWhatItHasCounted(t *testing.T) {
	s, m, _ := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{Meter: &tally{}})
	text(t, s, "ls", `{}`)
	text(t, s, "ls", `{}`)
	reports, err := m.HolderReports(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []wisbox.HolderReport{{Session: "box", Report: []byte("2 calls, 0 ended")}}, reports)

	other, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "not-held", Kept: true})
	require.NoError(t, err)
	defer other.Close(t.Context())
	reports, err = m.HolderReports(t.Context())
	require.NoError(t, err)
	assert.Len(t, reports, 1, "asking starts no holder")
}

func TestAHolderThatCountsNothingSaysSo(t *testing.T) {
	_, m, _ := held(t, time.Minute)
	reports, err := m.HolderReports(t.Context())
	require.NoError(t, err)
	require.Len(t, reports, 1)
	assert.Equal(t, tool.Unsupported, tool.KindOf(reports[0].Err))
}

func TestAskingForMetricsKeepsNoHolderAlive(t *testing.T) {
	s, m, ended := heldBy(t, 500*time.Millisecond, wisbox.SessionOptions{}, wisbox.Options{Meter: &tally{}})
	text(t, s, "ls", `{}`)
	for deadline := time.After(20 * time.Second); ; {
		_, err := m.HolderReports(t.Context())
		require.NoError(t, err)
		select {
		case err := <-ended:
			assert.NoError(t, err)
			return
		case <-deadline:
			t.Fatal("the holder stays")
		default:
		}
	}
}

// TestLookingAtWhatASessionTakesKeepsNoHolderAlive, since a server looks every few seconds.
func TestLookingAtWhatASessionTakesKeepsNoHolderAlive(t *testing.T) {
	s, _, ended := held(t, 500*time.Millisecond)
	text(t, s, "ls", `{}`)
	for deadline := time.After(30 * time.Second); ; {
		_, _ = s.Usage(t.Context()) // its result doesn't matter while the holder ends
		select {
		case err := <-ended:
			assert.NoError(t, err)
			return
		case <-deadline:
			t.Fatal("the holder stays")
		default:
		}
	}
}

func TestProgramsThatOutliveTheirCallAreCountedAndTracedWhenTheyEnd(t *testing.T) {
	counted, rec := &tally{}, &spans{}
	m, _ := manager(t, wisbox.Options{Meter: counted, TracerProvider: rec})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	text(t, s, "shell_execute", `{"commands":["true"]}`)
	assert.Empty(t, counted.all(), "one runs, the other ended with its call")
	rec.take()
	require.NoError(t, p.Kill())
	_, err = p.Wait(t.Context())
	require.NoError(t, err)
	var ended []string
	require.Eventually(t, func() bool { ended = counted.all(); return len(ended) == 1 }, 30*time.Second, time.Millisecond)
	assert.NotEqual(t, "exited", ended[0])
	got := rec.take()
	require.Len(t, got, 1)
	assert.Equal(t, [2]string{"wisbox program", "wisbox start"}, [2]string{got[0].name, got[0].parent})
	assert.Equal(t, ended[0], got[0].attributes["wisbox.verdict"])

	text(t, s, "process_start", `{"script":"exit 3"}`)
	require.Eventually(t, func() bool { return len(counted.all()) == 2 }, 30*time.Second, time.Millisecond)
	assert.Equal(t, "exited", counted.all()[1])
}

// remoteSpan is a span of another process: only its numbers are known.
func remoteSpan() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled})
}

func TestATraceGoesOnInTheHolder(t *testing.T) {
	rec := &spans{}
	s, _, _ := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{TracerProvider: rec})
	ctx := trace.ContextWithSpanContext(t.Context(), remoteSpan())
	_, err := s.Call(ctx, "ls", []byte(`{}`))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return rec.below(remoteSpan(), "wisbox ls") }, 30*time.Second, time.Millisecond)
	_, err = s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return rec.below(remoteSpan(), "wisbox run") }, 30*time.Second, time.Millisecond)
	_, err = s.Call(context.Background(), "glob", []byte(`{"pattern":"*"}`))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return rec.below(trace.SpanContext{}, "wisbox glob") }, 30*time.Second, time.Millisecond)
}
