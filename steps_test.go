package wisbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// session opens an ephemeral session in this process.
func session(t *testing.T, opts wisbox.SessionOptions) *wisbox.Session {
	t.Helper()
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), &opts)
	require.NoError(t, err)
	return s
}

// eachHost runs a test over a session of this process and over one that another
// process holds.
func eachHost(t *testing.T, opts wisbox.SessionOptions, test func(t *testing.T, s *wisbox.Session)) {
	eachHere(t, opts, test)
	t.Run("far", func(t *testing.T) { test(t, farWith(t, opts, wisbox.Options{})) })
}

// eachHere is eachHost for features that differ in far sessions, or that need more holders for
// them.
func eachHere(t *testing.T, opts wisbox.SessionOptions, test func(t *testing.T, s *wisbox.Session)) {
	t.Run("local", func(t *testing.T) { test(t, session(t, opts)) })
	t.Run("held", func(t *testing.T) {
		s, _, _ := heldWith(t, time.Minute, opts)
		test(t, s)
	})
}

func script(t *testing.T, s *wisbox.Session, code string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]string{"script": code})
	require.NoError(t, err)
	return text(t, s, "shell_execute", string(raw))
}

func content(t *testing.T, s *wisbox.Session, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(workspace(s), path))
	if os.IsNotExist(err) {
		return "(none)"
	}
	require.NoError(t, err)
	return string(b)
}

func sessionDir(s *wisbox.Session) string {
	dir := workspace(s)
	for filepath.Base(dir) != s.ID() { // the workspace may be on a separate disk
		dir = filepath.Dir(dir)
	}
	return dir
}

// logged returns the records of a session's log.
func logged(t *testing.T, s *wisbox.Session) []wisbox.Event {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sessionDir(s), "log.jsonl"))
	require.NoError(t, err)
	var out []wisbox.Event
	for line := range strings.Lines(string(b)) {
		var e wisbox.Event
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		out = append(out, e)
	}
	return out
}

func TestUndoTakesCallsBackOneByOne(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"f","content":"1"}`)
		script(t, s, "printf 2 >f; printf x >g")
		script(t, s, "cat f") // changes nothing: no step
		text(t, s, "edit_file", `{"file_path":"f","old_string":"2","new_string":"3"}`)

		u, err := s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "2", content(t, s, "f"))
		assert.Equal(t, 1, u.Calls)
		_, err = s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "1", content(t, s, "f"))
		assert.Equal(t, "(none)", content(t, s, "g"))
		_, err = s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "(none)", content(t, s, "f"))
		_, err = s.Undo(t.Context(), "")
		assert.Equal(t, tool.NotFound, tool.KindOf(err), "there is nothing left to undo")

		text(t, s, "snapshot_restore", `{"snapshot_id":"`+u.Before+`"}`)
		assert.Equal(t, "3", content(t, s, "f"), "an undo can be taken back")
	})
}

// Programs that live on and those of exec leave a step each, whether or not they change anything,
// because their end isn't known.
func TestUndoPassesOverStepsAfterWhichNothingHasChanged(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		start := func(script string) {
			p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", script}})
			require.NoError(t, err)
			_, err = p.Wait(t.Context())
			require.NoError(t, err)
		}
		start("printf 1 >f")
		start("cat f")
		start("ls")
		u, err := s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.EqualValues(t, 1, u.Restored.Removed)
		assert.Equal(t, 3, u.Calls)
		assert.Equal(t, "(none)", content(t, s, "f"))
		start("ls")
		_, err = s.Undo(t.Context(), "")
		assert.Equal(t, tool.NotFound, tool.KindOf(err))
	})
}

// TestUndoTakesTheBeginningOfAnID if it is unique, in any case of its letters.
func TestUndoTakesTheBeginningOfAnID(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"f","content":"1"}`)
		text(t, s, "write_file", `{"file_path":"g","content":"1"}`)
		call := logged(t, s)[1].Call
		_, err := s.Undo(t.Context(), call[:4])
		assert.Equal(t, tool.NotFound, tool.KindOf(err), "both begin with the same time")
		_, err = s.Undo(t.Context(), strings.ToUpper(call[:len(call)-1]))
		require.NoError(t, err)
		assert.Equal(t, "1", content(t, s, "f"))
		assert.Equal(t, "(none)", content(t, s, "g"))
	})
}

func TestUndoGoesBackToTheCallOfTheLog(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"a","content":"1"}`)
		script(t, s, "printf 2 >a")
		text(t, s, "rm", `{"path":"a"}`)
		events := logged(t, s)
		require.Len(t, events, 3)
		u, err := s.Undo(t.Context(), events[1].Call)
		require.NoError(t, err)
		assert.Equal(t, events[1].Call, u.Call)
		assert.Equal(t, 2, u.Calls)
		assert.Equal(t, "1", content(t, s, "a"))
		_, err = s.Undo(t.Context(), events[2].Call)
		assert.Equal(t, tool.NotFound, tool.KindOf(err))
		assert.Equal(t, "undo", logged(t, s)[3].Tool)
	})
}

func TestTheLogTellsWhatFilesACallChanged(t *testing.T) {
	calls := func(t *testing.T, s *wisbox.Session) []wisbox.Event {
		text(t, s, "write_file", `{"file_path":"d/f","content":"1"}`)
		script(t, s, "mkdir n && echo x >n/g; rm -r d")
		text(t, s, "ls", `{}`)
		return logged(t, s)
	}
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		events := calls(t, s)
		assert.Equal(t, []string{"d/f"}, paths(events[0]))
		assert.NotEmpty(t, events[0].Changes[0].SHA256)
		assert.Equal(t, []string{"n", "n/g", "-d", "-d/f"}, paths(events[1]))
		assert.Empty(t, events[2].Effects, "ls can change nothing")
	})
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		events := calls(t, s)
		assert.Equal(t, []string{"d/f"}, paths(events[0]))
		assert.Equal(t, wisbox.Effects{Unknown: true}, events[1].Effects, "it is unknown what the program did")
	})
}

// TestACancelledCallSaysHowFarItCame, in this process and in a holder.
func TestACancelledCallSaysHowFarItCame(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			assert.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(workspace(s), "begun")); return err == nil }, 20*time.Second, time.Millisecond)
			cancel()
		}()
		res, err := s.Call(ctx, "shell_execute", json.RawMessage(`{"script":"echo so far; touch begun; sleep 60"}`))
		require.NoError(t, err)
		assert.True(t, res.Failed)
		assert.Contains(t, res.Text, "so far")
	})
}

// paths returns the changes of a call, with a minus for removals.
func paths(e wisbox.Event) (out []string) {
	for _, c := range e.Changes {
		if c.Removed {
			c.Path = "-" + c.Path
		}
		out = append(out, c.Path)
	}
	return out
}

func TestAFailedCallIsRolledBack(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{RollbackOnFailure: true, MaxTimeout: time.Second}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"f","content":"1"}`)
		res, err := call(t, s, "shell_execute", `{"script":"printf 2 >f; mkdir x; sleep 60","timeout":3}`)
		require.NoError(t, err)
		assert.True(t, res.Failed)
		assert.Contains(t, res.Text, "rolled back")
		assert.Equal(t, "1", content(t, s, "f"))
		assert.NoDirExists(t, filepath.Join(workspace(s), "x"))
		events := logged(t, s)
		assert.True(t, events[1].RolledBack)

		script(t, s, "printf 3 >f; exit 1")
		assert.Equal(t, "3", content(t, s, "f"), "an exit code is not a failure of the tool")
		_, err = call(t, s, "write_file", `{"file_path":"f","content":"4"}`)
		assert.Equal(t, tool.Exists, tool.KindOf(err))
		assert.ErrorContains(t, err, "rolled back")
		_, err = s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "1", content(t, s, "f"), "what was rolled back has left no step")
	})
}

func TestSnapshotsCanBeRemoved(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		var made struct {
			ID string `json:"snapshot_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(text(t, s, "snapshot_create", `{"quiesce":true}`)), &made))
		require.NoError(t, s.RemoveSnapshots(t.Context(), made.ID))
		assert.NotContains(t, text(t, s, "snapshot_list", `{}`), made.ID)
		assert.Equal(t, tool.NotFound, tool.KindOf(s.RemoveSnapshots(t.Context(), made.ID)))
	})
}

func TestResetGivesAnEmptyWorkspaceWithTheMounts(t *testing.T) {
	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "m"), []byte("mounted"), 0o600))
	opts := wisbox.SessionOptions{Mounts: mounts(host, "p"), AllowedRoots: []string{host}}
	eachHost(t, opts, func(t *testing.T, s *wisbox.Session) {
		script(t, s, "echo changed >p/m; echo x >f")
		started := text(t, s, "process_start", `{"script":"sleep 600"}`)
		var p struct {
			ID string `json:"process_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(started), &p))
		var snap struct {
			ID string `json:"snapshot_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(text(t, s, "snapshot_create", `{}`)), &snap))

		require.NoError(t, s.Reset(t.Context()))
		assert.Equal(t, "mounted", content(t, s, "p/m"))
		assert.Equal(t, "(none)", content(t, s, "f"))
		assert.Contains(t, script(t, s, "cat p/m; ls"), `mountedp\n`)
		assert.NotContains(t, text(t, s, "process_list", `{}`), p.ID)
		text(t, s, "write_file", `{"file_path":"f","content":"new"}`)
		assert.Equal(t, "new", content(t, s, "f"))
		text(t, s, "snapshot_restore", `{"snapshot_id":"`+snap.ID+`"}`)
		assert.Equal(t, "x\n", content(t, s, "f"), "snapshots outlive a reset")
	})
}

func TestResetEndsCallsUnderWay(t *testing.T) {
	s := session(t, wisbox.SessionOptions{})
	var calls sync.WaitGroup
	calls.Go(func() {
		res, err := call(t, s, "shell_execute", `{"script":"touch begun; sleep 600","timeout":100}`)
		assert.True(t, err != nil || res.Failed)
	})
	require.Eventually(t, func() bool { return content(t, s, "begun") == "" }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, s.Reset(t.Context()))
	calls.Wait()
	assert.Contains(t, script(t, s, "ls"), `"stdout":""`)
}

func TestADigestIsReplacedForASessionOrForAll(t *testing.T) {
	eachHere(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"go.mod","content":"module example.com/x\n"}`)
		source := func() string { return text(t, s, "workspace_digest", `{}`) }
		assert.Contains(t, source(), `"source":"files"`)
		require.NoError(t, s.Digest().Set(t.Context(), digest.Text{Full: "for all"}, digest.Global))
		assert.Contains(t, source(), `"digest":"for all"`)
		other, err := s.Clone(t.Context(), nil)
		require.NoError(t, err)
		defer other.Close(t.Context())
		done, err := s.Digest().Optimize(t.Context(), func(_ context.Context, now digest.Text, r *digest.Report) (digest.Draft, error) {
			assert.Equal(t, "for all", now.Full)
			assert.Equal(t, 1, r.Files)
			return digest.Draft{Digest: digest.Text{Full: "mine"}}, nil
		}, digest.Session)
		require.NoError(t, err)
		assert.Equal(t, digest.SectionKey, done.SectionKey)
		assert.Contains(t, source(), `"digest":"mine"`)
		assert.Contains(t, text(t, other, "workspace_digest", `{}`), `"source":"override"`)
		text(t, s, "workspace_digest", `{"set":""}`)
		assert.Contains(t, source(), `"source":"override"`)
	})
}

// TestAnImportThatBreaksOffIsAStepOfItsOwn: undo takes back what it copied, and not the call before it.
func TestAnImportThatBreaksOffIsAStepOfItsOwn(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path": "dir/a", "content": "mine"}`)
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Size: 4, Mode: 0o644, Typeflag: tar.TypeReg}))
			_, err := w.Write([]byte("copy"))
			require.NoError(t, err)
		}
		_, err := s.Import(t.Context(), io.MultiReader(bytes.NewReader(archive.Bytes()[:5*512]), broken{}), "dir")
		require.ErrorContains(t, err, "what was copied before that stays (files: 2); wisbox undo "+s.ID()+" takes it back")
		assert.Equal(t, "copy", content(t, s, "dir/a"))
		_, err = s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "mine", content(t, s, "dir/a"))
		assert.Equal(t, "(none)", content(t, s, "dir/b"))
	})
}
