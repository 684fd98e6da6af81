package vfs_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/syscalltest"
	"github.com/wisbox/wisbox/vfs"
)

func init() { syscalltest.Child(writeDurably) }

// writeDurably creates a file and replaces it.
func writeDurably(base string) error {
	root, err := os.OpenRoot(filepath.Join(base, "workspace"))
	if err != nil {
		return err
	}
	tmp, err := os.OpenRoot(filepath.Join(base, "tmp"))
	if err != nil {
		return err
	}
	files, err := vfs.New(&vfs.Options{Root: root, Tmp: tmp, Fsync: true})
	if err != nil {
		return err
	}
	for _, raw := range []string{`{"file_path":"f","content":"old"}`, `{"file_path":"f","content":"new","mode":"overwrite"}`} {
		if _, err := byName(files)["write_file"].Call(context.Background(), json.RawMessage(raw)); err != nil {
			return err
		}
	}
	return nil
}

// TestFault_F35_AWriteReachesTheDiskBeforeItsName: the content, then the name,
// then the directory that has the name.
func TestFault_F35_AWriteReachesTheDiskBeforeItsName(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"workspace", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, dir), 0o755))
	}
	once := []string{"fsync tmp/wisbox-tmp", "rename", "fsync workspace"}
	assert.Equal(t, append(once, once...), syscalltest.Order(t, base))
}
