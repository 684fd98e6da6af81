package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// runChecks are about a program's arguments, directory and environment, and the report of its end.
var runChecks = []check{
	{"exit codes come as they are", func(t *testing.T, f *fixture) {
		for _, code := range []int{0, 1, 3, 124, 126, 127, 137, 255} {
			o := f.bash(t, fmt.Sprintf("exit %d", code))
			assert.Equal(t, sandbox.StatusExited, o.Status)
			assert.Equal(t, code, o.ExitCode)
			assert.Empty(t, o.Signal)
		}
	}},
	{"a program that is not there is exit 127 and says so", func(t *testing.T, f *fixture) {
		for _, argv := range [][]string{{"no-such-program"}, {"./no-such-file"}, {"/no/such/file"}, {"--privileged", "id"}, {"-u", "0", "id"}, {"--", "id"}} {
			o := f.run(t, sandbox.Cmd{Argv: argv})
			assert.Equal(t, sandbox.StatusExited, o.Status, argv)
			assert.Equal(t, sandbox.ExitNotFound, o.ExitCode, argv)
			assert.NotEmpty(t, o.err, argv)
			assert.Empty(t, o.out, argv)
		}
	}},
	{"a file that can't be executed is exit 126", func(t *testing.T, f *fixture) {
		f.must(t, "echo hi > plain; chmod 644 plain")
		o := f.run(t, sandbox.Cmd{Argv: []string{"./plain"}})
		assert.Equal(t, sandbox.StatusExited, o.Status)
		assert.Equal(t, sandbox.ExitNotExecutable, o.ExitCode)
		assert.NotEmpty(t, o.err)
	}},
	{"signals are 128 plus their number and have a name", func(t *testing.T, f *fixture) {
		for name, code := range map[string]int{"KILL": 137, "SEGV": 139, "TERM": 143} {
			o := f.bash(t, "kill -"+name+" $$")
			assert.Equal(t, sandbox.StatusSignaled, o.Status, name)
			assert.Equal(t, code, o.ExitCode, name)
			assert.Equal(t, name, o.Signal)
		}
	}},
	{"arguments arrive as they are, without a shell", func(t *testing.T, f *fixture) {
		args := []string{"$(id)", "`id`", ";", "|", "&&", ">pwned", "a b", "", "é", "line\nbreak", "*", "-n"}
		o := f.run(t, sandbox.Cmd{Argv: append([]string{"printf", "%s\\0"}, args...)})
		assert.Equal(t, strings.Join(args, "\x00")+"\x00", o.out)
		assert.NoFileExists(t, filepath.Join(f.spec.Workspace, "pwned"))
	}},
	{"programs start in the workspace or below it", func(t *testing.T, f *fixture) {
		f.must(t, "mkdir -p sub/dir; pwd -P > sub/dir/here")
		o := f.run(t, sandbox.Cmd{Argv: []string{"touch", "made"}, Dir: "sub/dir"})
		assert.Equal(t, 0, o.ExitCode, o.err)
		assert.FileExists(t, filepath.Join(f.spec.Workspace, "sub/dir/made"))
	}},
	{"commands that break a rule are refused", func(t *testing.T, f *fixture) {
		source := &sandbox.PythonProgram{Name: "x", Source: "def main(inp, out): pass"}
		for name, cmd := range map[string]sandbox.Cmd{
			"nothing to run":          {},
			"two things to run":       {Argv: []string{"true"}, Python: source},
			"program without name":    {Python: &sandbox.PythonProgram{Source: source.Source}},
			"NUL in an argument":      {Argv: []string{"echo", "a\x00b"}},
			"dir above":               {Argv: []string{"true"}, Dir: ".."},
			"dir above later":         {Argv: []string{"true"}, Dir: "sub/../.."},
			"absolute dir, not there": {Argv: []string{"true"}, Dir: "/no/such/dir"},
			"NUL in dir":              {Argv: []string{"true"}, Dir: "a\x00b"},
			"variable without =":      {Argv: []string{"true"}, Env: []string{"NAME"}},
			"variable without key":    {Argv: []string{"true"}, Env: []string{"=value"}},
			"NUL in a variable":       {Argv: []string{"true"}, Env: []string{"A=\x00"}},
			"negative timeout":        {Argv: []string{"true"}, Timeout: -time.Second},
		} {
			_, err := f.box.Run(context.Background(), cmd)
			assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
			_, err = f.box.Start(context.Background(), cmd)
			assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
		}
	}},
	{"a directory that is not there runs nothing", func(t *testing.T, f *fixture) {
		res, err := f.box.Run(context.Background(), sandbox.Cmd{Argv: []string{"true"}, Dir: "no/such/dir"})
		if err != nil {
			assert.ErrorIs(t, err, sandbox.ErrInvalid)
			return
		}
		assert.Equal(t, sandbox.StatusExited, res.Status)
		assert.NotZero(t, res.ExitCode)
	}},
	{"the environment is the fixed one, the spec's and the command's, later ones win", func(t *testing.T, f *fixture) {
		cmd := sandbox.Cmd{Argv: []string{"env", "-0"}, Env: []string{"WISBOX_SUITE_BOTH=cmd", "A=1", "A=2", "a=x=y", "EMPTY=", "LINES=a\nb"}}
		got := strings.Split(strings.TrimSuffix(f.run(t, cmd).out, "\x00"), "\x00")
		for _, want := range []string{"WISBOX_SUITE_SPEC=spec", "WISBOX_SUITE_BOTH=cmd", "A=2", "a=x=y", "EMPTY=", "LINES=a\nb", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"} {
			assert.Contains(t, got, want)
		}
		assert.NotContains(t, got, "A=1")
		keys := map[string]bool{}
		for _, kv := range got {
			key, _, _ := strings.Cut(kv, "=")
			assert.False(t, keys[key], "%s is there twice", key)
			keys[key] = true
		}
		assert.True(t, keys["PATH"] && keys["HOME"])
		assert.NotContains(t, strings.Join(got, " "), "of-the-host")
	}},
	{"home is a directory that can be written", func(t *testing.T, f *fixture) {
		assert.Equal(t, "ok", f.must(t, `touch "$HOME/x" && rm "$HOME/x" && echo ok`))
	}},
	{"both sides can change each other's files", func(t *testing.T, f *fixture) {
		owner, err := f.backend.Owner(context.Background())
		require.NoError(t, err)
		path := filepath.Join(f.spec.Workspace, "shared")
		require.NoError(t, os.WriteFile(path, []byte("host\n"), 0o600))
		require.NoError(t, os.Chown(path, owner.UID, owner.GID))
		f.must(t, "echo program >> shared; echo made > made-inside")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, "host\nprogram\n", string(text))
		require.NoError(t, os.WriteFile(filepath.Join(f.spec.Workspace, "made-inside"), []byte("host"), 0o600))
		assert.Equal(t, "host", f.must(t, "cat made-inside"))
	}},
	{"many programs run at the same time", func(t *testing.T, f *fixture) {
		const n = 24
		f.must(t, "rm -rf meet; mkdir meet")
		// Each waits until all have started, so they pass only if they overlap.
		script := fmt.Sprintf(`touch meet/$1; until [ "$(ls meet | wc -l)" -ge %d ]; do sleep 0.05; done; echo "$1"; exit "$1"`, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				o := f.run(t, sandbox.Cmd{Argv: append(f.script(script).Argv, "sh", fmt.Sprint(i)), Timeout: prompt})
				assert.Equal(t, fmt.Sprintf("%d\n", i), o.out)
				assert.Equal(t, i, o.ExitCode)
				assert.True(t, o.Shared)
			})
		}
		wg.Wait()
	}},
	{"usage and duration are reported", func(t *testing.T, f *fixture) {
		o := f.run(t, f.does(work))
		assert.GreaterOrEqual(t, o.Usage.User+o.Usage.System, 180*time.Millisecond)
		assert.GreaterOrEqual(t, o.Duration, 180*time.Millisecond)
		assert.Greater(t, o.Usage.MaxRSS, int64(1<<18))
		assert.False(t, o.Shared)
	}},
}
