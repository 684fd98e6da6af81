package engine

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// packed returns a front's file with an engine behind it.
func packed(t *testing.T, engine []byte) *Packed {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "front"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.WriteString("the front")
	require.NoError(t, err)
	var pages Pages
	pages.Add("help", "all\n")
	pages.Add("help exec", "Usage:\n")
	var written bytes.Buffer
	_, err = pages.WriteTo(&written)
	require.NoError(t, err)
	require.NoError(t, Append(f, engine, written.Bytes()))
	p, err := Open(f)
	require.NoError(t, err)
	return p
}

func random(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return b
}

// names lists a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// is checks the content of an engine and closes it.
func is(t *testing.T, want []byte, f *os.File, err error) {
	t.Helper()
	require.NoError(t, err)
	defer f.Close()
	got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
}

func TestAnEngineIsUnpackedOnce(t *testing.T) {
	want, dir := random(t, 1<<20), filepath.Join(t.TempDir(), "cache", "wisbox-engine")
	p := packed(t, want)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			f, err := p.kept(dir)
			is(t, want, f, err)
		})
	}
	all.Wait()
	assert.Equal(t, []string{p.name()}, names(t, dir), "nothing is left of the slower ones")
	path := filepath.Join(dir, p.name(), "wisbox")
	before, err := os.Stat(path)
	require.NoError(t, err)
	f, err := p.kept(dir)
	is(t, want, f, err)
	after, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))
	assert.Equal(t, os.FileMode(0o700), after.Mode())
}

func TestAFileThatIsNotTheEngineIsReplaced(t *testing.T) {
	want := random(t, 1<<16)
	for name, spoil := range map[string]func(path string) error{
		"cut":              func(path string) error { return os.Truncate(path, 7) },
		"open to a group":  func(path string) error { return os.Chmod(path, 0o770) },
		"missing":          os.Remove,
		"another user's":   func(path string) error { return os.Chown(path, 1234, 1234) },
		"a directory":      func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a link elsewhere": func(path string) error { return errors.Join(os.Rename(path, path+".x"), os.Symlink(path+".x", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another user's" && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			p, dir := packed(t, want), t.TempDir()
			f, err := p.kept(dir)
			is(t, want, f, err)
			require.NoError(t, spoil(filepath.Join(dir, p.name(), "wisbox")))
			f, err = p.kept(dir)
			is(t, want, f, err)
			assert.Equal(t, []string{p.name()}, names(t, dir))
		})
	}
}

func TestADamagedEngineIsNotUnpacked(t *testing.T) {
	p, dir := packed(t, random(t, 1<<16)), t.TempDir()
	_, err := p.file.WriteAt([]byte{1, 2, 3, 4}, p.at+1000)
	require.NoError(t, err)
	_, err = p.kept(dir)
	require.Error(t, err)
	assert.Empty(t, names(t, dir))
	_, err = p.inMemory()
	require.Error(t, err)
}

func TestWithoutADirectoryTheEngineIsInMemory(t *testing.T) {
	want := random(t, 1<<16)
	p := packed(t, want)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := p.kept(filepath.Join(file, "wisbox-engine"))
	require.Error(t, err)
	f, err := p.inMemory()
	is(t, want, f, err)
}

func TestTwoOlderEnginesStay(t *testing.T) {
	dir := t.TempDir()
	var last []string
	for range 5 {
		p := packed(t, random(t, 1<<10))
		f, err := p.kept(dir)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		last = append(last, p.name())
	}
	assert.ElementsMatch(t, last[2:], names(t, dir))
}

func TestAProgramWithoutAnEngineSaysSo(t *testing.T) {
	for _, content := range []string{"", "short", string(random(t, 500))} {
		path := filepath.Join(t.TempDir(), "program")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o700))
		f, err := os.Open(path)
		require.NoError(t, err)
		_, err = Open(f)
		require.ErrorIs(t, err, errNone)
		require.NoError(t, f.Close())
	}
}

func TestPagesAreBehindTheEngine(t *testing.T) {
	p := packed(t, random(t, 5000))
	for name, want := range map[string]string{"help": "all\n", "help exec": "Usage:\n"} {
		text, ok := p.Page(name)
		assert.True(t, ok)
		assert.Equal(t, want, string(text))
	}
	for _, name := range []string{"", "help e", "elp", "exec", "all"} {
		_, ok := p.Page(name)
		assert.False(t, ok, "%q", name)
	}
}
