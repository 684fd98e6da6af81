package main

import (
	"os"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

// TestOnlyATerminalIsATerminal: /dev/null is a character device, too, and nobody can answer a question there.
func TestOnlyATerminalIsATerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer null.Close()
	master, terminal, err := pty.Open()
	require.NoError(t, err)
	defer master.Close()
	defer terminal.Close()
	assert.False(t, isTerminal(null))
	assert.False(t, isTerminal(streams.Output{File: null}))
	assert.True(t, isTerminal(terminal))
	assert.True(t, isTerminal(streams.Output{File: terminal}))
}
