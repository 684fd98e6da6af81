package integration

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func TestWithUserNamespaceAutoNoTwoSessionsShareIDs(t *testing.T) {
	need(t)
	if os.Getuid() != 0 {
		_, err := env.manager.Open(t.Context(), &wisbox.SessionOptions{UserNS: "auto"})
		assert.Equal(t, tool.Unsupported, kind(err), "rootless programs have the user's ids")
		return
	}
	seen := map[uint32]bool{idOfPrograms(t, open(t, nil)): true}
	for range 2 {
		s := open(t, &wisbox.SessionOptions{UserNS: "auto"})
		id := idOfPrograms(t, s)
		assert.False(t, seen[id], "%d is another session's, or the default", id)
		assert.Greater(t, id, uint32(0x70000000))
		seen[id] = true
		call(t, s, "edit_file", args{"file_path": "f", "old_string": "program", "new_string": "tool"})
		assert.Equal(t, "tool\n", output(t, s, "cat f; echo more >>f"), "both sides change one file")
		require.NoError(t, env.backend.Remove(t.Context(), s.ID()))
		assert.Equal(t, "tool\nmore\n", recovered(t, s, "cat f"), "another container of the session has the same")
	}
}

// idOfPrograms is the user on the host that a session's programs write files as.
func idOfPrograms(t *testing.T, s *wisbox.Session) uint32 {
	t.Helper()
	output(t, s, "rm -f f; echo program >f")
	info, err := os.Stat(filepath.Join(s.WorkspacePath(), "f"))
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Uid
}
