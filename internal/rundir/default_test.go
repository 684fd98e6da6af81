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
