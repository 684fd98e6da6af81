package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

func TestTheHistoryIsKeptAndBounded(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	path := historyFile()
	h := openHistory(path)
	for _, line := range []string{"a", "", "  ", "b", "b", strings.Repeat("x", historyLineBytes+1), "é", "\xff", "two\nlines"} {
		h.Add(line)
	}
	in, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), in.Mode())
	h = openHistory(path)
	require.Equal(t, 3, h.Len())
	assert.Equal(t, []string{"é", "b", "a"}, []string{h.At(0), h.At(1), h.At(2)})
	for n := range historyLines + 10 {
		h.Add(fmt.Sprint(n))
	}
	assert.Equal(t, historyLines, h.Len())
	assert.Equal(t, "10", h.At(historyLines-1))

	var long bytes.Buffer
	for long.Len() <= historyBytes {
		fmt.Fprintf(&long, "line %d\n", long.Len())
	}
	require.NoError(t, os.WriteFile(path, long.Bytes(), 0o600))
	assert.Equal(t, historyLines, openHistory(path).Len())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, historyLines, bytes.Count(raw, []byte("\n")))
	in, err = os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), in.Mode())
}

func TestAHistoryThatCanNotBeKeptEndsNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	for _, path := range []string{"", filepath.Join(dir, "file", "x"), filepath.Join(dir, "link"), dir} {
		h := openHistory(path)
		h.Add("a")
		assert.Equal(t, 1, h.Len(), path)
	}
}

func TestTabCompletesANameOrIndents(t *testing.T) {
	for _, c := range []struct {
		line  string
		pos   int
		names []string
		want  string
		at    int
		says  string
	}{
		{"", 0, nil, "    ", 4, ""},
		{"x ", 2, []string{"never"}, "x     ", 6, ""},
		{"math.sq", 7, []string{"math.sqrt("}, "math.sqrt(", 10, ""},
		{"f(pri)", 5, []string{"print("}, "f(print()", 8, ""},
		{"ab", 2, []string{"abc1", "abc2"}, "abc", 3, ""},
		{"abc", 3, []string{"abc1", "abc2"}, "abc", 3, "abc1  abc2\n"},
		{"é", 2, []string{"éa", "éb"}, "é", 2, "éa  éb\n"},
		{"no", 2, nil, "no", 2, ""},
		{"x", 1, []string{"other", "x\x1b[2J", "x; rm()", "x\n"}, "x", 1, ""},
		{"x.f", 3, []string{"x.f()", "x.f\rrm"}, "x.f()", 5, ""},
	} {
		var out bytes.Buffer
		console := &console{Writer: &out, names: func(string) ([]string, string) { return c.names, "" }}
		line, at, ok := console.complete(c.line, c.pos, '\t')
		assert.True(t, ok)
		assert.Equal(t, c.want, line, c.line)
		assert.Equal(t, c.at, at, c.line)
		assert.Equal(t, c.says, out.String(), c.line)
		_, _, ok = console.complete(c.line, c.pos, 'x')
		assert.False(t, ok)
	}
}

// evaluates returns an evaluator that prints and ends with a status.
func evaluates(status string, printed ...string) evaluator {
	return func(_ context.Context, _ evaltool.Run, each func(evaltool.Part)) (*tool.Result, error) {
		for _, text := range printed {
			each(evaltool.Part{Stdout: text})
		}
		return &tool.Result{Value: map[string]any{"status": status, "message": "the names are lost"}}, nil
	}
}

func TestACompletionIsBoundedAndItsFailureIsSaid(t *testing.T) {
	found, problem := completer(t.Context(), evaluates("exited", `["a`, `b"]`), "")("a")
	assert.Equal(t, []string{"ab"}, found)
	assert.Empty(t, problem)

	found, problem = completer(t.Context(), evaluates("exited", `["`, strings.Repeat("a", namesBytes), `"]`), "")("a")
	assert.Equal(t, []string{""}, found, "what is too long is not collected")
	assert.Empty(t, problem)

	found, problem = completer(t.Context(), evaluates("timed_out"), "")("a")
	assert.Empty(t, found)
	assert.Equal(t, "timed_out: the names are lost", problem)

	waits := func(ctx context.Context, _ evaltool.Run, _ func(evaltool.Part)) (*tool.Result, error) {
		<-ctx.Done() // for another evaluation in the context
		return nil, ctx.Err()
	}
	var out bytes.Buffer
	console := &console{Writer: &out, names: completer(t.Context(), waits, "")}
	line, at, ok := console.complete("ab", 2, '\t')
	assert.Equal(t, "ab", line)
	assert.Equal(t, 2, at)
	assert.True(t, ok)
	assert.Equal(t, "wisbox: no completion: the context is busy\n", out.String())
}

func TestAPromptRefusesAnotherLanguage(t *testing.T) {
	all := []evaltool.Context{{Name: "p", Language: "python"}, {Name: "b", Language: "bash"}, {Name: "j", Language: "javascript"}}
	for _, name := range []string{"", "p", "new"} {
		assert.NoError(t, otherLanguage(all, name))
	}
	assert.EqualError(t, otherLanguage(all, "b"), "unsupported: the context b is of bash, and this prompt is Python's; use: wisbox eval python --session SESSION --context b CODE")
	assert.ErrorContains(t, otherLanguage(all, "j"), "is of javascript")
}

func TestTheHistoryIsTheUsersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	require.NoError(t, os.WriteFile(path, []byte("old\n"), 0o644))
	require.NoError(t, os.Chmod(path, 0o644))
	h := openHistory(path)
	in, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), in.Mode())
	h.Add(" secret = 1")
	h.Add("public")
	assert.Equal(t, " secret = 1", h.At(1))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old\npublic\n", string(raw))
	// Another prompt's lines stay when a long file is cut, also while that prompt uses the file.
	other := strings.Repeat(strings.Repeat("x", 1023)+"\n", historyBytes/1024)
	require.NoError(t, os.WriteFile(path, []byte(other+"other\n"), 0o600))
	h.Add("last")
	raw, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.LessOrEqual(t, bytes.Count(raw, []byte("\n")), historyLines)
	assert.True(t, bytes.HasSuffix(raw, []byte("x\nother\nlast\n")))
}

// A later rename of the directory has no effect, and no incomplete picture remains.
func TestPicturesStayInTheirDirectory(t *testing.T) {
	dir, elsewhere := filepath.Join(t.TempDir(), "plots"), t.TempDir()
	p := &pictures{dir: dir}
	defer p.close()
	picture := evaltool.Display{MIME: "image/png", Data: "UE5H"}
	_, err := p.save(picture)
	require.NoError(t, err)
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	require.NoError(t, os.Symlink(elsewhere, dir))
	_, err = p.save(picture)
	require.NoError(t, err)
	entries, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	assert.Empty(t, entries)
	assert.FileExists(t, filepath.Join(dir+"-moved", "2.png"))
}

func TestPicturesAreSavedAndNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "1.png"), []byte("old"), 0o600))
	var out bytes.Buffer
	p := &pictures{dir: dir}
	defer p.close()
	p.show(&console{Writer: &out}, &evaltool.Object{Display: []evaltool.Display{
		{MIME: "image/png", Data: "UE5H"}, {MIME: "text/html", Data: "<b>"}, {MIME: "image/svg+xml", Data: "<svg/>"}, {MIME: "image/png", Data: "no base64"}, {MIME: "image/x-own", Data: "UE5H"},
	}})
	assert.Equal(t, fmt.Sprintf("wisbox: saved %[1]s/2.png\nwisbox: saved %[1]s/3.svg\n", dir), out.String())
	for name, want := range map[string]string{"1.png": "old", "2.png": "PNG", "3.svg": "<svg/>"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(raw))
	}
}
