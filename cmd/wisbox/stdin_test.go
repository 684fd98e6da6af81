package main

import (
	"context"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

// awaited is a stdin that never ends, and reports when somebody reads it.
type awaited struct {
	io.Reader
	read func()
}

func (a awaited) Read(p []byte) (int, error) {
	a.read()
	return a.Reader.Read(p)
}

func TestACommandThatWaitsForItsInputEndsWithASignal(t *testing.T) {
	t.Setenv("WISBOX_CACHE", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", "")
	never, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	quiet := &app{in: never, out: io.Discard, err: io.Discard}
	require.Zero(t, quiet.main(t.Context(), []string{"session", "create", "box"}))
	for _, args := range [][]string{
		{"call", "box", "ls", "-"}, {"eval", "python", "-f", "-"}, {"cp", "-", "box:f"}, {"session", "load", "-"},
		{"rlm", "run", "-q", "why", "-c", "-", "--model", "m"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		a := &app{in: awaited{never, func() { cancel(streams.Signalled{Signal: syscall.SIGTERM}) }}, out: io.Discard, err: io.Discard}
		assert.Equal(t, 128+15, a.main(ctx, args), "%v", args)
	}
	require.Zero(t, quiet.main(t.Context(), []string{"session", "rm", "box"}))
}
