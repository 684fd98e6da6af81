package wisbox

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/snapshot"
)

// An archive may come from anybody: what it names on the host is not looked at.
func TestAnArchivesSettingsNameNoFileOfTheHost(t *testing.T) {
	a := &snapshot.Archive{Extra: map[string][]byte{settingsName: []byte(`{"image":"i",
		"secrets":{"KEY":{"file":"/etc/shadow"}},"seccomp":"/etc/profile.json","mounts":[{"host_path":"/etc"}]}`)}}
	o, err := (&LoadOptions{}).settings(a)
	require.NoError(t, err)
	assert.Equal(t, "i", o.Image)
	assert.Empty(t, o.Secrets)
	assert.Empty(t, o.Mounts)
	assert.Empty(t, o.Seccomp)
	assert.Empty(t, o.AllowedRoots)
}
