package main

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/sandbox"
)

func TestAReaderThatLeavesEndsTheCommandAsBySIGPIPE(t *testing.T) {
	ctx, end, _ := streams.Notify(t.Context())
	defer end(context.Canceled)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, r.Close())
	out := streams.Output{File: w, End: end}
	_, err = out.Write([]byte("a line\n"))
	require.ErrorIs(t, err, syscall.EPIPE)
	require.Error(t, ctx.Err())
	var said strings.Builder
	a := &app{out: out, err: &said}
	for _, err := range []error{nil, ctx.Err(), exitCode(exitError)} {
		assert.Equal(t, sandbox.ExitSignalBase+int(syscall.SIGPIPE), a.report(ctx, err))
	}
	assert.Empty(t, said.String())
}
