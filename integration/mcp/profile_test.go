package mcp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheAnthropicProfileHasAShellThatStaysAndAnEditor(t *testing.T) {
	c := newWorld(t).needsPodman().stdio("--profile", "anthropic")
	assert.ElementsMatch(t, []string{"bash", "str_replace_based_edit_tool"}, listed(t, c))
	bash := func(command string) args { return c.call("bash", args{"command": command}) }
	edit := func(a args) string { return c.call("str_replace_based_edit_tool", a)["message"].(string) }

	assert.Equal(t, "", bash("mkdir -p sub && cd sub && export WHO=\"it's me\"; cat")["output"])
	assert.Equal(t, "/workspace/sub it's me", bash("echo -n $PWD $WHO")["output"])
	assert.EqualValues(t, 3, bash("(exit 3)")["exit_code"])
	assert.NotZero(t, bash("echo 'unclosed")["exit_code"])
	assert.Contains(t, bash("exit 4")["note"], "ended")
	assert.Equal(t, "/workspace\n", bash("pwd")["output"])
	assert.Equal(t, "again", bash("seq 200000 >/dev/null; sleep 0.2; echo -n again")["output"])
	long := bash("seq 200000")["output"].(string)
	assert.Contains(t, long, "missing here")
	assert.Contains(t, long, "199999\n200000\n")
	assert.Equal(t, "the shell was restarted", c.call("bash", args{"restart": true})["note"])

	edit(args{"command": "create", "path": "/workspace/a.py", "file_text": "one\nthree"})
	edit(args{"command": "insert", "path": "a.py", "insert_line": 1, "insert_text": "two"})
	edit(args{"command": "insert", "path": "a.py", "insert_line": 3, "insert_text": "four"})
	edit(args{"command": "str_replace", "path": "a.py", "old_str": "three", "new_str": "3"})
	assert.Equal(t, "     2\ttwo\n     3\t3\n", edit(args{"command": "view", "path": "a.py", "view_range": []int{2, 3}}))
	assert.Equal(t, "one\ntwo\n3\nfour", bash("cat a.py")["output"])
	bash("mkdir -p dir/deep/er .hidden; touch dir/f dir/deep/g .hidden/h")
	assert.Equal(t, "/\na.py\ndir/\ndir/deep/\ndir/f\nsub/", edit(args{"command": "view", "path": "/"}))
}

func TestTheAnthropicShellAnswersWithAllOutputInItsOrder(t *testing.T) {
	c := newWorld(t).needsPodman().stdio("--profile", "anthropic")
	bash := func(command string) args { return c.call("bash", args{"command": command}) }

	for range 25 {
		assert.Equal(t, "1\n2\n3\n4\n", bash("echo 1; echo 2 >&2; echo 3; echo 4 >&2")["output"])
	}
	for name, redirection := range map[string]string{
		"both": "exec >file 2>&1", "stdout": "exec >file", "stderr": "exec 2>file", "closed": "exec >&- 2>&-", "a pipe": "exec > >(cat >file)",
	} {
		assert.EqualValues(t, 3, bash(redirection + "; (exit 3)")["exit_code"], name)
		assert.Equal(t, "out\nerr\n", bash("echo out; echo err >&2")["output"], name)
	}
	bash("exec >file; echo kept")
	assert.Equal(t, "kept\n", bash("cat file")["output"])
	assert.Equal(t, "++ echo traced\ntraced\n", bash("set -x; echo traced")["output"], "a trace of the commands has none of ours after them")
}

func TestTheEndOfATerminalsInputEndsTheProgram(t *testing.T) {
	c := newWorld(t).needsPodman().stdio()
	for _, text := range []string{"no line end", "a line\n", "a line\nand more", ""} {
		id := c.call("process_start", args{"commands": []string{"cat"}, "tty": true})["process_id"]
		c.call("process_write", args{"process_id": id, "data": text, "eof": true})
		var seen args
		require.Eventually(t, func() bool {
			seen = c.call("process_read", args{"process_id": id, "wait_seconds": 1})
			return seen["state"] == "exited"
		}, time.Minute, 10*time.Millisecond, text)
		if typed := strings.ReplaceAll(text, "\n", "\r\n"); typed != "" {
			assert.GreaterOrEqual(t, strings.Count(seen["output"].(string), typed), 2, "typed, and written by cat: %q", seen["output"])
		}
	}
}

func TestTheOpenAIProfileHasShellAndPatch(t *testing.T) {
	c := newWorld(t).needsPodman().stdio("--profile", "openai")
	assert.ElementsMatch(t, []string{"shell", "apply_patch"}, listed(t, c))
	c.call("apply_patch", args{"input": "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** End Patch"})
	c.call("apply_patch", args{"input": "*** Begin Patch\n*** Update File: a.txt\n*** Move to: b.txt\n@@\n one\n-two\n+2\n*** End Patch"})
	out := c.call("shell", args{"commands": []string{"cat a.txt b.txt", "seq 1000"}, "max_output_length": 100, "timeout_ms": 60000})["output"].([]any)
	assert.Len(t, out, 2)
	first, second := out[0].(args), out[1].(args)
	assert.Equal(t, "one\n2\n", first["stdout"])
	assert.Equal(t, args{"type": "exit", "exit_code": 1.0}, first["outcome"])
	assert.Contains(t, second["stdout"], "missing here")
	late := c.try("shell", args{"commands": []string{"sleep 60", "true"}, "timeout_ms": 1000})
	assert.True(t, late.IsError)
	assert.Len(t, object(t, late)["output"], 1)
}

func TestTheDeepAgentsProfile(t *testing.T) {
	c := newWorld(t).needsPodman().stdio("--profile", "deepagents")
	assert.ElementsMatch(t, []string{"ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute"}, listed(t, c))
	c.call("write_file", args{"file_path": "a.txt", "content": "f(x)\ng(y)\nf(x)\n"})
	assert.True(t, c.try("write_file", args{"file_path": "a.txt", "content": ""}).IsError)
	files := c.call("grep", args{"pattern": "f(x)", "output_mode": "content"})["files"].([]any)
	assert.EqualValues(t, 2, files[0].(args)["count"])
	assert.Equal(t, "out\nerr\n", c.call("execute", args{"command": "echo out; echo err >&2"})["output"])
}

func TestAShellGoesWithItsClientAndTheSessionStays(t *testing.T) {
	w := newWorld(t).needsPodman()
	out, err := w.command("session", "create", "box").CombinedOutput()
	require.NoError(t, err, "%s", out)
	defer func() {
		out, err := w.command("session", "rm", "box").CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}()
	first := w.stdio("--session", "box", "--profile", "anthropic")
	first.call("bash", args{"command": "echo kept > file"})
	require.NoError(t, first.Close())
	second := w.stdio("--session", "box")
	runs := func(one any) bool { return one.(args)["state"] == "running" }
	assert.Eventually(t, func() bool {
		return !slices.ContainsFunc(second.call("process_list", args{})["processes"].([]any), runs)
	}, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, "kept\n", second.call("read_file", args{"file_path": "file"})["content"])
	require.NoError(t, second.Close())
}
