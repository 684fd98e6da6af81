package shelltool_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

func TestTheToolsAndTheirParametersAreThoseOfTheContract(t *testing.T) {
	want := map[string]string{
		"shell_execute":  "capture_output commands cwd env script stdin timeout",
		"read_output":    "limit offset output_id stream",
		"process_start":  "cols commands cwd env rows script stdin tty wait_port wait_seconds",
		"process_list":   "",
		"process_read":   "offset process_id wait_seconds",
		"process_write":  "data eof process_id",
		"process_signal": "process_id signal",
		"process_resize": "cols process_id rows",
	}
	b := newBench(t)
	assert.Len(t, b.tools.Tools(), len(want))
	for _, tl := range b.tools.Tools() {
		var names []string
		for name := range tl.Input.Properties {
			names = append(names, name)
		}
		assert.ElementsMatch(t, strings.Fields(want[tl.Name]), names, tl.Name)
		assert.NotEmpty(t, tl.Description)
	}
	read, _ := b.tools.Lookup("process_read")
	for _, name := range []string{"process_id", "state", "output", "next_offset", "exit_code"} {
		assert.Contains(t, read.Output.Properties, name)
	}
}

func TestAResultIsSmallWhenThereIsLittleToSay(t *testing.T) {
	b := newBench(t)
	r, _ := b.execute(`{"commands":["true"]}`)
	text := asJSON(t, r)
	assert.Less(t, len(text), 220, text)
	assert.NotContains(t, text, "null")
	for _, field := range []string{"command", "cwd", "exit_code", "status", "stdout", "stderr", "stdout_dropped", "stderr_dropped", "timed_out", "duration_ms"} {
		assert.Contains(t, text, `"`+field+`"`)
	}
}

// deaf is a runner that must not be called.
type deaf struct{ t *testing.T }

func (d deaf) Run(_ context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	require.NotEmpty(d.t, cmd.Argv[0])
	for _, text := range append(cmd.Argv, cmd.Env...) {
		require.NotContains(d.t, text, "\x00")
		require.True(d.t, utf8.ValidString(text))
	}
	for _, kv := range cmd.Env {
		key, value, ok := strings.Cut(kv, "=")
		require.True(d.t, ok && key != "" && utf8.RuneCountInString(key) <= 80 && utf8.RuneCountInString(value) <= 512)
	}
	require.LessOrEqual(d.t, len(cmd.Env), 64)
	require.True(d.t, cmd.Timeout.Seconds() >= 1 && cmd.Timeout.Seconds() <= 120)
	return sandbox.Result{Status: sandbox.StatusExited}, nil
}

func (d deaf) Start(context.Context, sandbox.Cmd) (sandbox.Process, error) {
	return nil, sandbox.ErrUnsupported
}

func deafShell(t *testing.T) *shelltool.Shell {
	t.Helper()
	shell, err := shelltool.New(&shelltool.Options{
		Runner: func(context.Context) (sandbox.Runner, error) { return deaf{t}, nil }, Files: noFiles{},
	})
	require.NoError(t, err)
	return shell
}

func FuzzNothingThatBreaksARuleReachesASandbox(f *testing.F) {
	f.Add("echo", "a\x00b", "", "NAME", "value", "in", 3.0)
	f.Add("", "", "echo é", "A=B", "\x00", "\xff", math.NaN())
	f.Add("true", "", "x", "", "", "", math.Inf(1))
	f.Fuzz(func(t *testing.T, program, arg, script, key, value, stdin string, timeout float64) {
		shell := deafShell(t)
		c := shelltool.Command{Script: script, Env: map[string]string{key: value}, Stdin: stdin}
		if program != "" || arg != "" {
			c.Commands = []string{program, arg}
		}
		r, err := shell.Execute(t.Context(), shelltool.ExecuteParams{Command: c, Timeout: &timeout})
		if err != nil {
			require.Contains(t, []tool.Kind{tool.Invalid, tool.TooLarge}, tool.KindOf(err), err)
			require.NotEmpty(t, tool.AsError(err).Field)
			return
		}
		require.NotEmpty(t, r.Text())
	})
}

func FuzzArgumentsAsJSONNeverPanic(f *testing.F) {
	f.Add("shell_execute", []byte(`{"commands":["true"],"timeout":1e400}`))
	f.Add("read_output", []byte(`{"output_id":"01h00000000000000000000000","offset":9223372036854775807}`))
	f.Add("process_read", []byte(`{"process_id":"x","offset":-0,"wait_seconds":1e309}`))
	f.Add("process_resize", []byte(`{"process_id":"x","cols":65537,"rows":1}`))
	f.Fuzz(func(t *testing.T, name string, args []byte) {
		shell := deafShell(t)
		res, err := tool.NewSet(shell.Tools()...).Call(t.Context(), name, json.RawMessage(args))
		if err != nil {
			require.NotEqual(t, tool.Internal, tool.KindOf(err), err)
			return
		}
		require.NotEmpty(t, res.Text)
	})
}

func FuzzWhatIsShownHoldsNoControlCharacter(f *testing.F) {
	f.Add("a\x1b[1m\r\n\u202e\u0085")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range (shelltool.ExecuteResult{Status: "exited", Stdout: text, Stderr: text}).Text() {
			require.False(t, r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x202e, "%q", r)
		}
	})
}
