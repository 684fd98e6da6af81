package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArgumentsThatAreNoUTF8AreRefused: on their way they would become others.
func TestArgumentsThatAreNoUTF8AreRefused(t *testing.T) {
	cmd := &cobra.Command{Use: "exec"}
	require.NoError(t, needCommand(cmd, []string{"cat", "grüße", "\ufffd"}))
	err := needCommand(cmd, []string{"cat", "caf\xe9"})
	assert.ErrorAs(t, err, &usageError{})
	assert.ErrorContains(t, err, `argument 1 of the command, "caf\xe9", is not UTF-8`)
}
