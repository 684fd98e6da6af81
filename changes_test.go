package wisbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/tool"
)

// project creates a folder of the host, and returns it with the options of a session that mounts
// it.
func project(t *testing.T) (string, wisbox.SessionOptions) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("1\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("1\n"), 0o644))
	return dir, wisbox.SessionOptions{Mounts: []hostmount.Mount{{HostPath: dir, MountPath: "p"}}, AllowedRoots: []string{dir}, KeepGiven: true}
}

// TestChangesComeHome as a list, a patch and files, for a session in this process and one that
// another process holds.
func TestChangesComeHome(t *testing.T) {
	for _, kind := range []string{"local", "held"} {
		t.Run(kind, func(t *testing.T) {
			dir, opts := project(t)
			s := sessionOf(t, kind, opts)
			script(t, s, "cd p; echo 2 > a; rm b; echo 3 > c; chmod +x c; ln -s a l; ln -s /etc/passwd bad; mkdir -p .git && echo x > .git/config")
			diff, err := s.Diff(t.Context(), &wisbox.DiffOptions{Lines: true})
			require.NoError(t, err)
			require.Len(t, diff.Changes, 5)
			assert.Equal(t, int64(4), diff.AddedLines)
			assert.Equal(t, int64(1), diff.Git)
			assert.Equal(t, "given", diff.From)

			var patch bytes.Buffer
			_, err = s.Patch(t.Context(), &patch, nil)
			require.NoError(t, err)
			there := t.TempDir()
			require.NoError(t, os.CopyFS(filepath.Join(there, "p"), os.DirFS(dir)))
			git := exec.Command("git", "apply", "-")
			git.Dir, git.Stdin = there, &patch
			out, err := git.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.FileExists(t, filepath.Join(there, "p/c"))
			assert.NoFileExists(t, filepath.Join(there, "p/b"))

			require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("mine\n"), 0o644))
			done, err := s.Apply(t.Context(), nil)
			assert.Equal(t, tool.Conflict, tool.KindOf(err))
			require.Len(t, done.Conflicts, 1)
			assert.NoFileExists(t, filepath.Join(dir, "c"))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("1\n"), 0o644))
			done, err = s.Apply(t.Context(), nil)
			require.NoError(t, err)
			assert.Len(t, done.Changes, 4)
			require.Len(t, done.LeftOut, 1)
			assert.Equal(t, "p/bad", done.LeftOut[0].Path)
			info, err := os.Stat(filepath.Join(dir, "c"))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
			assert.NoDirExists(t, filepath.Join(dir, ".git"))
			e := logged(t, s)
			assert.Equal(t, [2]string{"apply", "ok"}, [2]string{e[len(e)-1].Tool, e[len(e)-1].Outcome})
			assert.Equal(t, [2]string{"apply", "failed"}, [2]string{e[len(e)-2].Tool, e[len(e)-2].Outcome})
		})
	}
}

func sessionOf(t *testing.T, kind string, opts wisbox.SessionOptions) *wisbox.Session {
	t.Helper()
	if kind == "local" {
		return session(t, opts)
	}
	s, _, _ := heldBy(t, time.Minute, opts, wisbox.Options{})
	return s
}

func TestASessionThatKeptNothingSaysSo(t *testing.T) {
	_, opts := project(t)
	opts.KeepGiven = false
	s := session(t, opts)
	_, err := s.Diff(t.Context(), nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	_, err = s.Apply(t.Context(), nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err))

	_, opts = project(t)
	s = session(t, opts)
	text(t, s, "write_file", `{"file_path":"x","content":"1"}`)
	list := text(t, s, "snapshot_list", `{}`)
	id := ids.FindString(list)
	require.NotEmpty(t, id, list)
	require.NoError(t, s.RemoveSnapshots(t.Context(), id))
	_, err = s.Diff(t.Context(), nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	assert.Contains(t, err.Error(), "was removed")
	_, err = s.Patch(t.Context(), io.Discard, &wisbox.DiffOptions{From: id})
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

// TestAComparisonLeavesNothing: its temporary snapshot is removed, after an error too.
func TestAComparisonLeavesNothing(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		script(t, s, "seq 100000 > f; mkfifo pipe; printf x > \"$(printf 'n\\377')\"")
		_, err := s.Patch(t.Context(), failing{}, nil)
		require.Error(t, err)
		diff, err := s.Diff(t.Context(), nil)
		require.NoError(t, err)
		assert.Len(t, diff.Changes, 2, "no FIFO")
		assert.NotRegexp(t, ids, text(t, s, "snapshot_list", `{}`))
	})
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestUndoPassesWhatNoPersonChanged, and lists what can be undone.
func TestUndoPassesWhatNoPersonChanged(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		script(t, s, "mkdir -p .git; echo 1 > .git/index; echo 1 > f; echo 1 > g")
		script(t, s, "rm f")
		script(t, s, "echo 2 > .git/index; mkdir __pycache__; echo x > __pycache__/f.pyc")
		steps, err := s.Steps(t.Context(), 2)
		require.NoError(t, err)
		require.Len(t, steps, 2)
		assert.Equal(t, int64(0), steps[0].Total)
		assert.Equal(t, []tool.Change{{Path: "f", Removed: true}}, steps[1].Changes)
		done, err := s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, [2]string{steps[1].Call, "shell_execute"}, [2]string{done.Call, done.Tool})
		assert.Equal(t, 2, done.Calls)
		assert.Equal(t, "1\n", content(t, s, "f"))
		assert.Equal(t, "1\n", content(t, s, ".git/index"))
		script(t, s, "echo 3 > .git/index")
		steps, err = s.Steps(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, steps, 2)
		_, err = s.Undo(t.Context(), steps[0].Call)
		require.NoError(t, err, "a call that is named is undone whatever it changed")
		assert.Equal(t, "1\n", content(t, s, ".git/index"))
	})
}

// A session's changes are a patch for git apply.
func ExampleSession_Patch() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		if _, err := s.CallOwn(ctx, "write_file", []byte(`{"file_path":"hello","content":"world\n"}`)); err != nil {
			return err
		}
		diff, err := s.Patch(ctx, os.Stdout, nil)
		if err == nil {
			fmt.Println(diff.Changes[0].Status, diff.Changes[0].Path)
		}
		return err
	})
	// Output:
	// diff --git a/hello b/hello
	// new file mode 100644
	// index 0000000000000000000000000000000000000000..cc628ccd10742baea8241c5924df992b5c019f71
	// --- /dev/null
	// +++ b/hello
	// @@ -0,0 +1 @@
	// +world
	// added hello
}

// TestALookAtWhatASessionTakesStartsAndRecordsNothing: in this process and held.
func TestALookAtWhatASessionTakesStartsAndRecordsNothing(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"f","content":"1"}`)
		before := len(logged(t, s))
		u, err := s.Usage(t.Context())
		require.NoError(t, err)
		assert.False(t, u.Running)
		assert.Positive(t, u.Disk)
		assert.Positive(t, u.Limits.Disk)
		script(t, s, "true")
		u, err = s.Usage(t.Context())
		require.NoError(t, err)
		assert.True(t, u.Running)
		assert.Nil(t, u.Gauge, "the test's backend counts nothing")
		assert.Len(t, logged(t, s), before+1)
	})
}
