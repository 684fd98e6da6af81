package bash_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/bash"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*bash.Engine
	workspace string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	box, err := sandboxtest.NewHost().Create(context.Background(), sandbox.Spec{ID: "bash-test", Image: "host", Workspace: dir})
	require.NoError(t, err)
	e := bash.New(&bash.Options{Runner: func(context.Context) (sandbox.Runner, error) { return box, nil }})
	t.Cleanup(func() {
		assert.NoError(t, e.Close())
		assert.NoError(t, box.Close(context.Background()))
	})
	return &bench{e, dir}
}

func (b *bench) eval(ctx context.Context, t *testing.T, req evaltool.Request) evaltool.Response {
	t.Helper()
	if req.Timeout == 0 {
		req.Timeout = 20 * time.Second
	}
	resp, err := b.Evaluate(ctx, req)
	require.NoError(t, err)
	return resp
}

func (b *bench) code(t *testing.T, code string) evaltool.Response {
	t.Helper()
	return b.eval(t.Context(), t, evaltool.Request{Code: code})
}

func TestAShellKeepsWhatABashKeeps(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		code, stdout, stderr, note string
	}{
		{"x=5; a=(1 2); f() { echo \"f $1\"; }; cd /", "", "", ""},
		{"echo $x ${a[1]} $PWD; f y", "5 2 /\nf y\n", "", ""},
		{"echo 'it'\\''s' \"!\" !!; cat <<E\nhere $x\nE", "it's ! !!\nhere 5\n", "", ""},
		{"echo err >&2; false", "", "err\n", "exit code 1"},
		{"(exit 255)", "", "", "exit code 255"},
		{"true", "", "", ""},
		{"read y; echo \"[$y]\"", "[]\n", "", ""},
		{"if then", "", "bash: syntax error near unexpected token `then'\n", "exit code 2"},
		{"echo $'\\xff'; printf é", "\uFFFD\né", "", ""},
		{"return 4", "", "bash: return: can only `return' from a function or sourced script\n", "exit code 2"},
		{"", "", "", ""},
		{"# nothing", "", "", ""},
		{"PROMPT_COMMAND=; PS1=x; PS2=y", "", "", ""},
		{"printf 'l\\n' | (read x; echo $x)\necho \\\n a", "l\na\n", "", ""},
		{"echo still", "still\n", "", ""},
	} {
		resp := b.code(t, c.code)
		assert.Equal(t, evaltool.StatusExited, resp.Status)
		assert.Equal(t, c.stdout, resp.Stdout, c.code)
		if c.code != "return 4" && !strings.HasPrefix(c.code, "if") { // bash's messages differ by version
			assert.Equal(t, c.stderr, resp.Stderr, c.code)
		}
		assert.Equal(t, c.note, strings.Join(resp.Notes, " "), c.code)
	}
}

func TestContextsHaveDirectoriesAndVariables(t *testing.T) {
	b := newBench(t)
	req := evaltool.Request{Code: "pwd; echo $A; export B=b", Context: "c", Dir: "/usr", ContextEnv: map[string]string{"A": "it's a"}}
	assert.Equal(t, "/usr\nit's a\n", b.eval(t.Context(), t, req).Stdout)
	req.Code, req.Env = "echo $A $B $C; env | grep -c '^[ABC]='", map[string]string{"A": "$x '", "C": "c", "D-E; touch f": "d"}
	assert.Equal(t, "$x ' b c\n3\n", b.eval(t.Context(), t, req).Stdout)
	req.Env = nil
	assert.Equal(t, "it's a b\n2\n", b.eval(t.Context(), t, req).Stdout)
	assert.Equal(t, "\n0\n", b.code(t, req.Code).Stdout, "another shell")
	assert.Equal(t, b.workspace+"\n", b.eval(t.Context(), t, evaltool.Request{Code: "pwd", Context: "d", Dir: "/none"}).Stdout)
}

func TestAnInterruptKeepsTheVariables(t *testing.T) {
	b := newBench(t)
	b.code(t, "z=5")
	for _, code := range []string{"sleep 60", "while :; do :; done", "f() { sleep 60; echo more; }; f; echo more", "sleep 60 | cat", "yes", "$(sleep 60)"} {
		ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
		var more bool
		feed := evaltool.NewFeed(ctx, func(p evaltool.Part) { more = more || strings.Contains(p.Stdout, "more") })
		resp := b.eval(ctx, t, evaltool.Request{Code: "touch begun; " + code, Timeout: time.Minute, Feed: feed})
		feed.Close(ctx)
		assert.Equal(t, evaltool.StatusCancelled, resp.Status, code)
		assert.Contains(t, strings.Join(resp.Notes, " "), "still there", code)
		assert.False(t, more, code)
		assert.Equal(t, "5\n", b.code(t, "rm begun; echo $z").Stdout, code)
	}
	resp := b.eval(t.Context(), t, evaltool.Request{Code: "sleep 60", Timeout: 200 * time.Millisecond})
	assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
	assert.True(t, strings.HasSuffix(resp.Stderr, evaltool.TimeoutText))
	assert.Equal(t, "5\n", b.code(t, "echo $z").Stdout)
}

// TestAnInterruptEndsWhatTheCodeBegan: its programs would write into the next evaluation. Background programs of an
// earlier evaluation continue.
func TestAnInterruptEndsWhatTheCodeBegan(t *testing.T) {
	b := newBench(t)
	b.code(t, "sleep 4741 & kept=$!")
	ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
	resp := b.eval(ctx, t, evaltool.Request{Code: "(trap '' INT; exec yes) & left=$!; touch begun; while :; do :; done", Timeout: time.Minute})
	assert.Equal(t, evaltool.StatusCancelled, resp.Status)
	assert.Contains(t, strings.Join(resp.Notes, " "), "still there")
	assert.Equal(t, "ended\nruns\n", b.code(t, "kill -0 $left 2>/dev/null || echo ended; kill -0 $kept && echo runs; kill $kept; echo $kept $left before $__wisbox_before now ${__wisbox_now[@]} >&2; ps -o pid,ppid,args >&2").Stdout)
}

func TestHostileCodeLosesItsShellAtMost(t *testing.T) {
	b := newBench(t)
	for _, code := range []string{
		"exit 3", "kill -9 $$", "exec true", "set -e; false", "trap '' INT; while :; do sleep 1; done", "exec 4>&-; exec 2>&- 1>&-",
		"for fd in /proc/$$/fd/*; do { printf '\\377\\377\\377\\377x' > $fd; } 2>/dev/null; done", "unset -f __wisbox; __wisbox=x; PROMPT_COMMAND=:",
		"eval() { echo no; }; unset() { :; }; printf() { :; }", "alias eval=false; shopt -s expand_aliases",
	} {
		resp := b.eval(t.Context(), t, evaltool.Request{Code: "z=5; " + code, Timeout: time.Second})
		if resp.Ended {
			assert.Contains(t, strings.Join(resp.Notes, " "), "lost", code)
		}
		require.NoError(t, b.Reset(t.Context(), ""))
		assert.Equal(t, "1\n", b.code(t, "echo 1").Stdout, code)
	}
}
