package wisbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// everything has a call of each kind; later ones use the results of earlier ones.
var everything = []struct {
	name string
	do   func(ctx context.Context, s *wisbox.Session) error
}{
	{"a tool writes", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Call(ctx, "write_file", json.RawMessage(`{"file_path":"f","content":"x\n"}`))
		return err
	}},
	{"a tool refuses", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Call(ctx, "write_file", json.RawMessage(`{"file_path":"f","content":"x"}`))
		return err
	}},
	{"an unknown tool", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Call(ctx, "nosuch", json.RawMessage(`{}`))
		return err
	}},
	{"a tool runs a program", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Call(ctx, "shell_execute", json.RawMessage(`{"script":"echo y > g; exit 3"}`))
		return err
	}},
	{"an evaluation that is followed", func(ctx context.Context, s *wisbox.Session) error {
		var said string
		_, err := s.Evaluate(ctx, evaltool.Run{Params: evaltool.Params{Code: "print(6 * 7)"}}, func(p evaltool.Part) { said += p.Stdout })
		if err == nil && said != "42\n" {
			return io.ErrUnexpectedEOF
		}
		return err
	}},
	{"a context", func(ctx context.Context, s *wisbox.Session) error {
		if err := s.CreateContext(ctx, evaltool.Context{Name: "shell", Language: "bash", Env: map[string]string{"A": "a"}}); err != nil {
			return err
		}
		var said string
		_, err := s.Evaluate(ctx, evaltool.Run{Params: evaltool.Params{Code: "echo $A", Context: "shell"}}, func(p evaltool.Part) { said += p.Stdout })
		if err == nil && said != "a\n" {
			return io.ErrUnexpectedEOF
		}
		all, failed := s.Contexts(ctx)
		if failed == nil && len(all) != 1 {
			return io.ErrUnexpectedEOF
		}
		return errors.Join(err, failed)
	}},
	{"a context again", func(ctx context.Context, s *wisbox.Session) error {
		return s.CreateContext(ctx, evaltool.Context{Name: "shell"})
	}},
	{"a context begins again", func(ctx context.Context, s *wisbox.Session) error { return s.RestartContext(ctx, "shell") }},
	{"a context goes", func(ctx context.Context, s *wisbox.Session) error { return s.RemoveContext(ctx, "shell") }},
	{"a program", func(ctx context.Context, s *wisbox.Session) error {
		var out strings.Builder
		_, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "cat > h; echo out"}, Stdin: strings.NewReader("in"), Stdout: &out})
		if err == nil && out.String() != "out\n" {
			return io.ErrUnexpectedEOF
		}
		return err
	}},
	{"a program that ends badly", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "kill -9 $$"}})
		return err
	}},
	{"a program outside", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}, Dir: "../.."})
		return err
	}},
	{"a program that lives on", func(ctx context.Context, s *wisbox.Session) error {
		p, err := s.Start(ctx, sandbox.Cmd{Argv: []string{"true"}})
		if err == nil {
			_, err = p.Wait(ctx)
		}
		return err
	}},
	{"a process", func(ctx context.Context, s *wisbox.Session) error {
		info, err := s.StartProcess(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "read x; echo $x > p; exit 3"}}, &wisbox.ProcessOptions{KeepStdin: true})
		if err != nil {
			return err
		}
		a, err := s.AttachProcess(ctx, info.ProcessID, &wisbox.AttachOptions{Stdin: strings.NewReader("in\n")})
		if err == nil {
			_, err = a.Wait(ctx)
		}
		return errors.Join(err, inLog(s, "process_end", info.ProcessID))
	}},
	{"a process that isn't there", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.SignalProcess(ctx, "nosuch", "TERM")
		return err
	}},
	{"an import", func(ctx context.Context, s *wisbox.Session) error {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		_ = w.WriteHeader(&tar.Header{Name: "i", Size: 1, Mode: 0o644, Typeflag: tar.TypeReg})
		_, _ = w.Write([]byte("i"))
		_ = w.Close()
		_, err := s.Import(ctx, &b, "dir")
		return err
	}},
	{"an import that breaks off", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Import(ctx, io.MultiReader(strings.NewReader("tar?"), broken{}), "dir")
		return err
	}},
	{"an export", func(ctx context.Context, s *wisbox.Session) error {
		var b bytes.Buffer
		_, err := s.Export(ctx, "f", &b)
		return err
	}},
	{"a template", func(ctx context.Context, s *wisbox.Session) error {
		made, err := s.CreateTemplate(ctx, &wisbox.TemplateOptions{Name: "kept"})
		if err == nil && (made.Name != "kept" || made.Session != s.ID() || made.Files == 0) {
			return io.ErrUnexpectedEOF
		}
		return err
	}},
	{"a template of a wrong name", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.CreateTemplate(ctx, &wisbox.TemplateOptions{Name: "a b"})
		return err
	}},
	{"a comparison", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Diff(ctx, nil); return err }},
	{"a patch", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Patch(ctx, io.Discard, nil)
		return err
	}},
	{"a patch of nothing", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Patch(ctx, io.Discard, &wisbox.DiffOptions{From: "nosuch"})
		return err
	}},
	{"an apply without a mount", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Apply(ctx, nil); return err }},
	{"a branch without a mount", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Branch(ctx, &wisbox.BranchOptions{Name: "b"})
		return err
	}},
	{"an undo", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Undo(ctx, ""); return err }},
	{"an undo of nothing", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Undo(ctx, "nosuch"); return err }},
	{"an archive", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Save(ctx, io.Discard); return err }},
	{"a clone", func(ctx context.Context, s *wisbox.Session) error {
		c, err := s.Clone(ctx, nil)
		if err != nil {
			return err
		}
		return c.Close(ctx)
	}},
	{"snapshots go", func(ctx context.Context, s *wisbox.Session) error { return s.RemoveSnapshots(ctx, "nosuch") }},
	{"a secret", func(ctx context.Context, s *wisbox.Session) error {
		return s.SetSecrets(ctx, map[string]wisbox.Secret{"TOKEN": {Value: []byte("a value of a secret")}})
	}},
	{"a rule", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Allow(ctx, "example.com"); return err }},
	{"a rule that is wrong", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Deny(ctx, "*"); return err }},
	{"no rule any more", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Deny(ctx, "example.com"); return err }},
	{"a pause that can't be made", func(ctx context.Context, s *wisbox.Session) error { return s.Pause(ctx) }},
	{"a reset", func(ctx context.Context, s *wisbox.Session) error { return s.Reset(ctx) }},
	{"a pause", func(ctx context.Context, s *wisbox.Session) error { return s.Pause(ctx) }},
	{"a program of a paused session", func(ctx context.Context, s *wisbox.Session) error {
		_, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}})
		return err
	}},
	{"a reset of a paused session", func(ctx context.Context, s *wisbox.Session) error { return s.Reset(ctx) }},
	{"a resume", func(ctx context.Context, s *wisbox.Session) error { _, err := s.Resume(ctx); return err }},
}

// inLog waits for a record of that tool and process.
func inLog(s *wisbox.Session, tool, process string) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		raw, err := os.ReadFile(filepath.Join(sessionDir(s), "log.jsonl"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, `"tool":"`+tool+`"`) && strings.Contains(line, process) {
				return nil
			}
		}
	}
	return fmt.Errorf("no %s of %s", tool, process)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestAKeptSessionIsTheSameSession makes the same calls in a session of this process and in one
// that another process holds: the answers, the records and the resulting workspaces are the same.
func TestAKeptSessionIsTheSameSession(t *testing.T) {
	for _, opts := range []wisbox.SessionOptions{{}, {AutoSnapshot: true}, {RollbackOnFailure: true}} {
		t.Run(fmt.Sprintf("steps %v, rollback %v", opts.AutoSnapshot, opts.RollbackOnFailure), func(t *testing.T) {
			seen := map[string][]string{}
			eachHost(t, opts, func(t *testing.T, s *wisbox.Session) {
				kind := filepath.Base(t.Name())
				for _, call := range everything {
					err := call.do(t.Context(), s)
					line := call.name + ": ok"
					if err != nil {
						line = call.name + ": " + string(tool.KindOf(err))
					}
					seen[kind] = append(seen[kind], line+" "+tree(t, s))
				}
				for _, e := range logged(t, s) {
					seen[kind] = append(seen[kind], comparable(t, e))
				}
			})
			assert.Equal(t, seen["local"], seen["held"])
			assert.Equal(t, slices.DeleteFunc(slices.Clone(seen["local"]), func(line string) bool {
				return strings.Contains(line, `"tool":"apply"`) || strings.Contains(line, `"tool":"branch"`) // refused before they leave this machine
			}), seen["far"])
			const more = 4 // the ends of two programs that outlive their calls, the call that attaches, and the one that is evaluated in a context
			assert.Len(t, seen["local"], 2*len(everything)+more, "each call has a record")
		})
	}
}

// tree returns the files of a session's workspace.
func tree(t *testing.T, s *wisbox.Session) string {
	t.Helper()
	all, err := filepath.Glob(workspace(s) + "/*")
	require.NoError(t, err)
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return strings.Join(all, " ")
}

var ids = regexp.MustCompile(`(?i)\b[0-9a-z]{26}\b`)

// comparable returns a record without the parts that differ between two sessions.
func comparable(t *testing.T, e wisbox.Event) string {
	t.Helper()
	e.Message = strings.ReplaceAll(strings.ReplaceAll(e.Message, "session "+e.Session, "session ID"), "resume "+e.Session, "resume ID")
	e.Time, e.Duration, e.Session, e.Call, e.Caller = time.Time{}, 0, "", "", ""
	if e.Tool == "shell_execute" { // its text has the duration
		e.ResultSize = 0
	}
	return ids.ReplaceAllString(mustJSON(t, e), "ID")
}

// TestAProgramOfAKeptSessionIsRolledBack: a program is treated the same over the wire.
func TestAProgramOfAKeptSessionIsRolledBack(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{RollbackOnFailure: true}, func(t *testing.T, s *wisbox.Session) {
		res, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo x > f; kill -9 $$"}})
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusSignaled, res.Status)
		assert.Empty(t, tree(t, s))
		last := logged(t, s)
		assert.True(t, last[len(last)-1].RolledBack)
	})
}

// TestToolsOnlyDescribe: their work goes through Call, with its step and record.
func TestToolsOnlyDescribe(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{Profile: "anthropic"}, func(t *testing.T, s *wisbox.Session) {
		set := s.Tools()
		_, ok := set.Lookup("str_replace_based_edit_tool")
		assert.True(t, ok)
		_, err := set.Call(t.Context(), "str_replace_based_edit_tool", json.RawMessage(`{"command":"create","path":"f","file_text":"x"}`))
		assert.Equal(t, tool.Unsupported, tool.KindOf(err))
		assert.Empty(t, tree(t, s))
		text(t, s, "str_replace_based_edit_tool", `{"command":"create","path":"f","file_text":"x"}`)
		e := logged(t, s)[0]
		require.Len(t, e.Changes, 1, "an adapter's changes are its tools' changes")
		assert.Equal(t, "f", e.Changes[0].Path)
	})
}

type shout struct {
	Text string `json:"text"`
}

// TestAnEmbeddersOwnToolIsRecordedAsAllOthers, wherever the session's work is done.
func TestAnEmbeddersOwnToolIsRecordedAsAllOthers(t *testing.T) {
	own := func(s *wisbox.Session) []tool.Tool {
		return []tool.Tool{tool.New(tool.Spec{Name: "shout", Description: "Write a text in capitals to a file"}, func(ctx context.Context, p shout) (shout, error) {
			loud := shout{strings.ToUpper(p.Text)}
			raw, err := json.Marshal(map[string]string{"file_path": "loud", "content": loud.Text})
			if err == nil {
				_, err = s.Call(ctx, "write_file", raw)
			}
			return loud, err
		})}
	}
	check := func(t *testing.T, s *wisbox.Session) {
		_, ok := s.Tools().Lookup("shout")
		assert.True(t, ok)
		assert.JSONEq(t, `{"text":"HELLO"}`, text(t, s, "shout", `{"text":"hello"}`))
		assert.Equal(t, "HELLO", content(t, s, "loud"))
		all := logged(t, s)
		require.Len(t, all, 2)
		assert.Equal(t, [2]string{"write_file", "shout"}, [2]string{all[0].Tool, all[1].Tool})
		_, err := s.Undo(t.Context(), "")
		require.NoError(t, err)
		assert.Empty(t, tree(t, s))
	}
	t.Run("local", func(t *testing.T) {
		m, _ := manager(t, wisbox.Options{Tools: own})
		s, err := m.Open(t.Context(), &wisbox.SessionOptions{AutoSnapshot: true})
		require.NoError(t, err)
		check(t, s)
	})
	t.Run("held", func(t *testing.T) {
		s, _, _ := heldBy(t, time.Minute, wisbox.SessionOptions{AutoSnapshot: true}, wisbox.Options{Tools: own})
		check(t, s)
	})
}

// TestTheFacadeHasNoWireAndNoLocks: both have packages of their own.
func TestTheFacadeHasNoWireAndNoLocks(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	count := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		count++
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, word := range []string{"sync.Mutex", "sync.RWMutex", "semaphore.", "flock", "net.Listen", "net.Dial", "hold.Frame", "hold.NewConn"} {
			assert.NotContains(t, string(source), word, file)
		}
	}
	assert.LessOrEqual(t, count, 25, "a façade is small")
}
