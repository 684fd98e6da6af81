package packing_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/packing"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source makes a directory with one file.
func source(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "src")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("of here"), 0o644))
	return dir
}

func TestMountsBecomeOneStream(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := source(t)
	p, err := packing.Copy(t.Context(), []hostmount.Mount{{HostPath: dir, MountPath: "in"}}, hostmount.Options{AllowedRoots: []string{dir}})
	require.NoError(t, err)
	assert.Equal(t, "in", p.Mounts[0].MountPath)
	assert.Len(t, p.Report.Mounts, 1)

	archive, found := tar.NewReader(p.Stream(t.Context())), false
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if h.Name == "in/f" {
			raw, err := io.ReadAll(archive)
			require.NoError(t, err)
			assert.Equal(t, "of here", string(raw))
			found = true
		}
	}
	assert.True(t, found)
	p.Close()
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestWhatCanNotBePackedLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := packing.Copy(t.Context(), []hostmount.Mount{{HostPath: source(t)}}, hostmount.Options{})
	require.Error(t, err, "no directory is allowed")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	assert.Empty(t, left)

	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	_, err = packing.Copy(t.Context(), []hostmount.Mount{{HostPath: source(t)}}, hostmount.Options{})
	assert.ErrorContains(t, err, "TMPDIR")
}

func TestNoMountsAreNoPack(t *testing.T) {
	p, err := packing.Copy(t.Context(), nil, hostmount.Options{})
	require.NoError(t, err)
	require.Nil(t, p)
	assert.Equal(t, io.EOF, p.Because(io.EOF))
	p.Close()
}

func TestARecordIsOfOneSession(t *testing.T) {
	root := t.TempDir()
	all, other := packing.RecordsOf(root, "here"), packing.RecordsOf(root, "there")
	then := overlay.Now()
	record := packing.Record{Created: then, Mounts: []hostmount.Mount{{HostPath: "/src", MountPath: "in"}}, Roots: []string{"/src"}}

	require.NoError(t, all.Remove("../box"), "there is none")
	require.NoError(t, all.Rename("../box", "b"))
	require.NoError(t, all.Keep("../box", record))
	assert.Equal(t, &record, all.Of("../box", then))
	assert.Nil(t, all.Of("../box", overlay.Stamp{}), "a later session of the same name")
	assert.Nil(t, other.Of("../box", then), "another machine's session of the same name")
	assert.True(t, all.Exist("../box"))
	assert.False(t, other.Exist("../box"))

	require.NoError(t, all.Rename("../box", "b"))
	assert.Nil(t, all.Of("../box", then))
	assert.Equal(t, &record, all.Of("b", then))
	require.NoError(t, all.Remove("b"))
	assert.False(t, all.Exist("b"))
}

func TestARecordThatCanNotBeWrittenSaysSo(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "far"), nil, 0o600))
	err := packing.RecordsOf(root, "here").Keep("box", packing.Record{})
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.NotContains(t, err.Error(), root)
}
