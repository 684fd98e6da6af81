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
	"time"

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

// TestAnEngineIsKeptOnlyWhereNobodyElseDecides: root may have another user's HOME, and nothing there may be run, changed
// or removed.
func TestAnEngineIsKeptOnlyWhereNobodyElseDecides(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	theirs := func(t *testing.T, dir string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.Chown(dir, 1234, 1234))
	}
	for name, prepare := range map[string]func(t *testing.T, home, elsewhere string){
		"another user's home": func(t *testing.T, home, _ string) { t.Helper(); theirs(t, home) },
		"another user's cache directory": func(t *testing.T, home, _ string) {
			t.Helper()
			theirs(t, filepath.Join(home, ".cache"))
		},
		"another user's directory": func(t *testing.T, home, _ string) {
			t.Helper()
			theirs(t, filepath.Join(home, ".cache", "wisbox-engine"))
		},
		"another user's link": func(t *testing.T, home, elsewhere string) {
			t.Helper()
			require.NoError(t, os.MkdirAll(filepath.Join(home, ".cache"), 0o755))
			link := filepath.Join(home, ".cache", "wisbox-engine")
			require.NoError(t, os.Symlink(elsewhere, link))
			require.NoError(t, os.Lchown(link, 1234, 1234))
		},
		"a directory open to all": func(t *testing.T, home, _ string) {
			t.Helper()
			require.NoError(t, os.MkdirAll(filepath.Join(home, ".cache"), 0o755))
			require.NoError(t, os.Chmod(filepath.Join(home, ".cache"), 0o777))
		},
	} {
		t.Run(name, func(t *testing.T) {
			home, elsewhere := filepath.Join(t.TempDir(), "home"), t.TempDir()
			for _, file := range []string{"a", "b", "c", "d"} {
				require.NoError(t, os.WriteFile(filepath.Join(elsewhere, file), nil, 0o600))
			}
			prepare(t, home, elsewhere)
			before := tree(t, home)
			f, err := packed(t, random(t, 1<<10)).kept(filepath.Join(home, ".cache", "wisbox-engine"))
			if err == nil {
				f.Close()
			}
			require.Error(t, err)
			assert.Equal(t, []string{"a", "b", "c", "d"}, names(t, elsewhere))
			assert.Equal(t, before, tree(t, home))
		})
	}
}

// tree lists all paths below a directory.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	return all
}

// TestNothingButOldEnginesIsRemoved: a directory may have been linked to another place.
func TestNothingButOldEnginesIsRemoved(t *testing.T) {
	dir := t.TempDir()
	others := []string{"documents", "mail", "music", "pictures", "work"}
	for _, name := range others {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	abandoned, new := filepath.Join(dir, ".new-1"), filepath.Join(dir, ".new-2")
	require.NoError(t, errors.Join(os.Mkdir(abandoned, 0o700), os.Mkdir(new, 0o700)))
	yesterday := time.Now().Add(-24 * time.Hour)
	require.NoError(t, os.Chtimes(abandoned, yesterday, yesterday))
	p := packed(t, random(t, 1<<10))
	f, err := p.kept(dir)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.ElementsMatch(t, append(others, p.name(), ".new-2"), names(t, dir))
}

// TestARelativeHomeKeepsNoEngine: the directory in which a command is run may be a stranger's repository.
func TestARelativeHomeKeepsNoEngine(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("WISBOX_CACHE", "")
	t.Setenv("WEAKINCENTIVES_CACHE", "")
	t.Setenv("HOME", ".")
	assert.Empty(t, dirs())
	t.Setenv("HOME", "/home/x")
	assert.Equal(t, []string{"/home/x/.cache"}, dirs())
}
