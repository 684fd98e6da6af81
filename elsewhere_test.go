package wisbox_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func TestAnotherSystemHasSessionsOnLinuxMachinesOnly(t *testing.T) {
	_, near, _ := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{})
	wisbox.SetSystem(t, "darwin")
	root := filepath.Join(t.TempDir(), "cache")
	_, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: root})
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	assert.ErrorContains(t, err, "need Linux")
	assert.NoDirExists(t, root, "nothing was made")

	m := farFrom(t, near, wisbox.Options{}, nil)
	s, err := m.Attach(t.Context(), "box")
	require.NoError(t, err)
	_, err = s.Call(t.Context(), "write_file", []byte(`{"file_path": "f", "content": "x"}`))
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(workspace(s), "f"))
}
