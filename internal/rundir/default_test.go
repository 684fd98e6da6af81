package rundir

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLoginDirectory(t *testing.T) {
	login, missing := t.TempDir(), filepath.Join(t.TempDir(), "none")
	assert.Equal(t, login, firstOfOurs("", login))
	assert.Equal(t, login, firstOfOurs(missing, login))
	assert.Empty(t, firstOfOurs("", missing))
}

// TestRootHasOneDirectory: logind makes and removes /run/user/0 with root's logins, and units have none.
func TestRootHasOneDirectory(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	assert.Equal(t, "/run/wisbox", defaultOf(0))
}
