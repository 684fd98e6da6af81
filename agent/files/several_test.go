package files_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

type file struct{ path, text string }

// several returns the files as content, which ends with err.
func several(err error, all ...file) io.Reader {
	return sandbox.Several(func() (string, io.Reader, error) {
		if len(all) == 0 {
			return "", nil, err
		}
		next := all[0]
		all = all[1:]
		return next.path, strings.NewReader(next.text), nil
	})
}

// tree returns the files below a directory with their content; directories end with a slash.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			found[name+"/"] = ""
			return nil
		}
		content, err := os.ReadFile(path)
		found[name] = string(content)
		return err
	}))
	return found
}

var severally = sandbox.WriteOptions{How: sandbox.WriteSeveral, Parents: true}

func TestSeveralFilesAreWritten(t *testing.T) {
	f := start(t)
	f.write(t, f.dir+"/old", "old", sandbox.WriteOptions{Mode: 0o755})
	require.NoError(t, os.Symlink("old", f.dir+"/link"))
	other := directory(t, "/dev/shm")
	require.NoError(t, f.Write(t.Context(), "/", several(io.EOF,
		file{f.dir + "/link", "new"}, file{f.dir + "/a/b/c", ""}, file{f.dir + "/a/big", strings.Repeat("x", 300_000)},
		file{other + "/d/e", "elsewhere"}, file{f.dir + "/twice", "1"}, file{f.dir + "/twice", "2"}), severally))
	assert.Equal(t, map[string]string{
		"old": "new", "link": "new", "a/": "", "a/b/": "", "a/b/c": "", "a/big": strings.Repeat("x", 300_000), "twice": "2",
	}, tree(t, f.dir))
	assert.Equal(t, map[string]string{"d/": "", "d/e": "elsewhere"}, tree(t, other))
	is, err := f.Stat(t.Context(), f.dir+"/old", sandbox.StatOptions{})
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o755), is.Mode)
	require.NoError(t, f.Write(t.Context(), "/", several(io.EOF), severally))
}

// TestSeveralFilesOrNone has each way in which one of several files can't be written.
func TestSeveralFilesOrNone(t *testing.T) {
	f := start(t)
	require.NoError(t, os.Mkdir(f.dir+"/dir", 0o755))
	own(t, f.dir+"/dir")
	f.write(t, f.dir+"/old", "old", sandbox.WriteOptions{})
	f.write(t, f.dir+"/old2", "old 2", sandbox.WriteOptions{})
	before := tree(t, f.dir)
	left := errors.New("the client has left")
	good := []file{{f.dir + "/old", "new"}, {f.dir + "/new/er", "new"}, {f.dir + "/old2", "new 2"}}
	for name, c := range map[string]struct {
		last file
		end  error
		want error
		at   string
	}{
		"the content ends early":           {file{f.dir + "/x", "x"}, left, left, ""},
		"a directory has the name":         {file{f.dir + "/dir", "x"}, io.EOF, syscall.EISDIR, f.dir + "/dir"},
		"a file is a directory of a path":  {file{f.dir + "/old/x", "x"}, io.EOF, syscall.ENOTDIR, f.dir + "/old/x"},
		"a new file is also a directory":   {file{f.dir + "/new/er/x", "x"}, io.EOF, syscall.EISDIR, f.dir + "/new/er"},
		"no right":                         {file{"/etc/passwd", "x"}, io.EOF, fs.ErrPermission, "/etc/passwd"},
		"a name that is too long":          {file{f.dir + "/" + strings.Repeat("n", 300), "x"}, io.EOF, syscall.ENAMETOOLONG, ""},
		"a path that isn't absolute":       {file{"x", "x"}, io.EOF, syscall.EINVAL, ""},
		"a path that is too long":          {file{"/" + strings.Repeat("n/", 3000), "x"}, io.EOF, syscall.ENAMETOOLONG, ""},
		"a directory that nobody can make": {file{"/proc/new/x", "x"}, io.EOF, nil, "/proc/new/x"},
	} {
		t.Run(name, func(t *testing.T) {
			err := f.Write(t.Context(), "/", several(c.end, append(append([]file{}, good...), c.last)...), severally)
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			if c.at != "" {
				one := (*fs.PathError)(nil)
				require.ErrorAs(t, err, &one)
				assert.Equal(t, c.at, one.Path)
			}
			assert.Equal(t, before, tree(t, f.dir))
		})
	}
	require.NoError(t, f.Write(t.Context(), "/", several(io.EOF, good...), severally))
	assert.Equal(t, map[string]string{"dir/": "", "old": "new", "old2": "new 2", "new/": "", "new/er": "new"}, tree(t, f.dir))
}

func TestAKilledWriteOfSeveralLeavesNothingAfterTheNext(t *testing.T) {
	f := start(t)
	f.write(t, f.dir+"/f", "old", sandbox.WriteOptions{})
	sent := 0
	err := f.Write(t.Context(), "/", sandbox.Several(func() (string, io.Reader, error) {
		if sent++; sent == 50 {
			f.sh(t, `for p in /proc/[0-9]*; do readlink $p/fd/* 2>/dev/null | grep -q ^`+f.dir+` && kill -9 ${p#/proc/}; done; true`)
		}
		if sent > 100 {
			return "", nil, io.EOF
		}
		return fmt.Sprintf("%s/f%d", f.dir, sent), strings.NewReader(strings.Repeat("x", 100_000)), nil
	}), severally)
	require.ErrorIs(t, err, sandbox.ErrInterrupted)
	assert.Equal(t, "old", f.read(t, f.dir+"/f", sandbox.OpenOptions{}))
	assert.LessOrEqual(t, len(names(t, f.dir)), 2)
	require.NoError(t, f.Write(t.Context(), "/", several(io.EOF, file{f.dir + "/g", "new"}), severally))
	assert.Equal(t, map[string]string{"f": "old", "g": "new"}, tree(t, f.dir))
}

// TestWritersOfSeveralFilesDoNotMix has many writers of the same files.
func TestWritersOfSeveralFilesDoNotMix(t *testing.T) {
	f := start(t)
	done := make(chan error)
	for n := range 12 {
		go func() {
			text := strings.Repeat(fmt.Sprint(n%10), 50_000)
			done <- f.Write(t.Context(), "/", several(io.EOF, file{f.dir + "/d/a", text}, file{f.dir + "/d/b", text}), severally)
		}()
	}
	for range 12 {
		assert.NoError(t, <-done)
	}
	for name, text := range tree(t, f.dir) {
		assert.True(t, strings.HasSuffix(name, "/") || text == strings.Repeat(text[:1], 50_000), name)
	}
	assert.Equal(t, []string{"a", "b"}, names(t, f.dir+"/d"))
}

func TestAWatchReportsSeveralFilesAsWritten(t *testing.T) {
	f := start(t)
	f.write(t, f.dir+"/old", "old", sandbox.WriteOptions{})
	w, err := f.Watch(t.Context(), f.dir, sandbox.WatchOptions{})
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, f.Write(t.Context(), "/", several(io.EOF, file{f.dir + "/old", "new"}, file{f.dir + "/new", "new"}), severally))
	for _, name := range []string{"old", "new"} {
		for _, change := range []sandbox.FileChange{sandbox.FileCreated, sandbox.FileWritten} {
			event, err := w.Next()
			require.NoError(t, err)
			assert.Equal(t, sandbox.FileEvent{Change: change, Name: name}, event)
		}
	}
}
