package rundir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoginDirectory(t *testing.T) {
	login, missing := t.TempDir(), filepath.Join(t.TempDir(), "none")
	assert.Equal(t, login, firstOfOurs(MaxSocketPath, "", login))
	assert.Equal(t, login, firstOfOurs(MaxSocketPath, missing, login))
	assert.Empty(t, firstOfOurs(MaxSocketPath, "", missing))
	assert.Empty(t, firstOfOurs(len(login), login), "no room for a socket")
}

// TestALoginIsFoundWithoutItsVariables: cron jobs have none, and su keeps those of the user before.
func TestALoginIsFoundWithoutItsVariables(t *testing.T) {
	usual, own := t.TempDir(), t.TempDir()
	for _, c := range []struct{ variable, usual, want string }{
		{"", usual, usual}, {own, usual, own}, {filepath.Join(own, "none"), usual, usual}, {"", filepath.Join(usual, "none"), ""},
	} {
		t.Setenv("XDG_RUNTIME_DIR", c.variable)
		assert.Equal(t, c.want, loginOf(os.Getuid()+1, c.usual), "%+v", c)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/run/any")
	assert.Equal(t, "/run/any", loginOf(0, usual), "logind removes root's directory with root's logins")

	bus := filepath.Join(own, "bus")
	assert.False(t, Bus(own, ""))
	assert.False(t, Bus(own, "unix:path="+bus+",guid=1"))
	assert.False(t, Bus("", ""))
	assert.True(t, Bus("", "unix:abstract=/tmp/dbus"))
	require.NoError(t, os.WriteFile(bus, nil, 0o600))
	assert.True(t, Bus(own, ""))
	assert.True(t, Bus("", "unix:path="+bus+",guid=1"))
}

// TestRootHasOneDirectory: logind makes and removes /run/user/0 with root's logins, and units have none.
func TestRootHasOneDirectory(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	assert.Equal(t, "/run/wisbox", defaultOf(0))
}
