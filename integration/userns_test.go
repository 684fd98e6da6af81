package integration

import (
	"os"
	"path/filepath"
	"strings"
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
	seen := map[string]bool{strings.Fields(output(t, open(t, nil), "cat /proc/self/uid_map"))[1]: true}
	for range 2 {
		s := open(t, &wisbox.SessionOptions{UserNS: "auto"})
		base := strings.Fields(output(t, s, "cat /proc/self/uid_map; echo program >f"))[1]
		assert.False(t, seen[base], "%s is another session's, or the default", base)
		seen[base] = true
		call(t, s, "edit_file", args{"file_path": "f", "old_string": "program", "new_string": "tool"})
		assert.Equal(t, "tool\n", output(t, s, "cat f; echo more >>f"), "both sides change one file")
		info, err := os.Stat(filepath.Join(s.WorkspacePath(), "f"))
		require.NoError(t, err)
		assert.Greater(t, int(info.Sys().(*syscall.Stat_t).Uid), 0x70000000)

		require.NoError(t, env.backend.Remove(t.Context(), s.ID()))
		assert.Equal(t, "tool\nmore\n", output(t, s, "cat f"), "another container of the session has the same")
	}
}
