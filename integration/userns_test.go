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
	"github.com/wisbox/wisbox/sandbox"
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

// TestEachSessionHasIDsOfItsOwnWhereThatCostsNothing: it is the default if layers can be mounted with shifted IDs.
func TestEachSessionHasIDsOfItsOwnWhereThatCostsNothing(t *testing.T) {
	need(t)
	if os.Getuid() != 0 || env.isolation == sandbox.IsolationGVisor {
		one, other := idOfPrograms(t, open(t, nil)), idOfPrograms(t, open(t, nil))
		assert.Equal(t, one, other)
		return
	}
	one, other := idOfPrograms(t, open(t, nil)), idOfPrograms(t, open(t, nil))
	assert.Equal(t, env.backend.CheapRanges(t.Context()), one != other)

	owner, err := env.backend.Owner(t.Context())
	require.NoError(t, err)
	shared := open(t, &wisbox.SessionOptions{UserNS: "shared"})
	assert.EqualValues(t, owner.UID, idOfPrograms(t, shared))
	assert.Contains(t, gapsOf(t, shared), "user id")
	_, err = try(t, open(t, &wisbox.SessionOptions{UserNS: "shared", Strict: true}), "shell_execute", args{"script": "true"})
	assert.Equal(t, tool.Unavailable, kind(err))
	assert.ErrorContains(t, err, "user id")
}

// TestAKeptSessionKeepsItsIDs: a session that began with the shared range keeps it.
func TestAKeptSessionKeepsItsIDs(t *testing.T) {
	h := newHome(t)
	m := h.manager()
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, UserNS: "shared", Isolation: env.isolation})
	require.NoError(t, err)
	before := idOfPrograms(t, s)
	path := filepath.Join(h.cache, "sessions", "box", "session.json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	older := strings.Replace(string(raw), `"userns": "shared"`, `"userns": ""`, 1) // as before there was a choice
	require.NotEqual(t, string(raw), older)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, os.WriteFile(path, []byte(older), 0o600))
	s, err = m.Attach(t.Context(), "box")
	require.NoError(t, err)
	require.NoError(t, m.Backend().Remove(t.Context(), s.ID()))
	assert.Equal(t, before, idOfPrograms(t, s))
	require.NoError(t, s.Close(t.Context()))
}

// idOfPrograms returns the host user of files that a session's programs write.
func idOfPrograms(t *testing.T, s *wisbox.Session) uint32 {
	t.Helper()
	output(t, s, "rm -f f; echo program >f")
	info, err := os.Stat(filepath.Join(s.WorkspacePath(), "f"))
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Uid
}
