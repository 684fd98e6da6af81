package shelltool_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func TestBadArgumentsNameTheirFieldAndRunNothing(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("/etc", filepath.Join(b.workspace, "out")))
	many := func(n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(`"K%d":"v"`, i))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		args, field string
		kind        tool.Kind
	}{
		"neither":             {`{}`, "commands", tool.Invalid},
		"no command":          {`{"commands":[]}`, "commands", tool.Invalid},
		"empty program":       {`{"commands":[""]}`, "commands", tool.Invalid},
		"both":                {`{"commands":["true"],"script":"true"}`, "script", tool.Invalid},
		"unknown":             {`{"script":"true","shell":"zsh"}`, "shell", tool.Invalid},
		"type":                {`{"commands":"true"}`, "commands", tool.Invalid},
		"not ASCII":           {`{"commands":["echo","é"]}`, "commands", tool.Invalid},
		"NUL in argv":         {`{"commands":["echo","a\u0000b"]}`, "commands", tool.Invalid},
		"argv too long":       {`{"commands":["echo","` + long(4093) + `"]}`, "commands", tool.Invalid},
		"too many arguments":  {`{"commands":["echo"` + strings.Repeat(`,""`, 4096) + `]}`, "commands", tool.Invalid},
		"script too long":     {`{"script":"` + long(32769) + `"}`, "script", tool.Invalid},
		"NUL in script":       {`{"script":"a\u0000b"}`, "script", tool.Invalid},
		"65 variables":        {`{"script":"true","env":` + many(65) + `}`, "env", tool.Invalid},
		"empty name":          {`{"script":"true","env":{"":"v"}}`, "env", tool.Invalid},
		"= in a name":         {`{"script":"true","env":{"A=B":"v"}}`, "env", tool.Invalid},
		"newline in a name":   {`{"script":"true","env":{"A\nB":"v"}}`, "env", tool.Invalid},
		"name of 81":          {`{"script":"true","env":{"` + long(81) + `":"v"}}`, "env", tool.Invalid},
		"value of 513":        {`{"script":"true","env":{"A":"` + long(513) + `"}}`, "env", tool.Invalid},
		"NUL in a value":      {`{"script":"true","env":{"A":"a\u0000b"}}`, "env", tool.Invalid},
		"value of a type":     {`{"script":"true","env":{"A":1}}`, "env.A", tool.Invalid},
		"stdin too long":      {`{"script":"true","stdin":"` + long(48_001) + `"}`, "stdin", tool.TooLarge},
		"timeout as text":     {`{"script":"true","timeout":"30"}`, "timeout", tool.Invalid},
		"timeout null":        {`{"script":"true","timeout":null}`, "timeout", tool.Invalid},
		"cwd missing":         {`{"script":"true","cwd":"nothere"}`, "cwd", tool.NotFound},
		"cwd a file":          {`{"script":"true","cwd":"file"}`, "cwd", tool.NotDir},
		"cwd outside":         {`{"script":"true","cwd":"/etc"}`, "cwd", tool.Invalid},
		"cwd the root":        {`{"script":"true","cwd":"/"}`, "cwd", tool.Invalid},
		"cwd like workspace":  {`{"script":"true","cwd":"/workspacex"}`, "cwd", tool.Invalid},
		"cwd a descriptor":    {`{"script":"true","cwd":"/proc/self/fd/7"}`, "cwd", tool.Invalid},
		"cwd above":           {`{"script":"true","cwd":"a/../.."}`, "cwd", tool.Invalid},
		"cwd a long segment":  {`{"script":"true","cwd":"` + long(81) + `"}`, "cwd", tool.Invalid},
		"cwd a link that out": {`{"script":"true","cwd":"out"}`, "cwd", tool.Escape},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"shell_execute", "process_start"} {
				if name == "process_start" && c.field == "timeout" {
					continue
				}
				_, err := b.call(name, c.args)
				var e *tool.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, c.kind, e.Kind, e.Message)
				assert.Equal(t, c.field, e.Field)
				assert.NotContains(t, e.Message, b.workspace)
			}
		})
	}
	assert.Zero(t, b.shell.Running())
}

func TestLimitsAreTakenToTheirLastCharacter(t *testing.T) {
	b := newBench(t)
	r, _ := b.execute(`{"commands":["echo","` + strings.Repeat("x", 4092) + `"]}`)
	assert.Len(t, r.Stdout, 4093)
	r, _ = b.execute(`{"script":` + quote(strings.Repeat("#", 32763)+"\ntrue") + `}`)
	assert.Equal(t, 0, r.ExitCode)
	r, _ = b.execute(`{"script":"echo ${#A}","env":{"A":"` + strings.Repeat("v", 512) + `"}}`)
	assert.Equal(t, "512\n", r.Stdout)
	r, _ = b.execute(`{"commands":["wc","-m"],"stdin":"` + strings.Repeat("é", 48_000) + `"}`)
	assert.Equal(t, "48000\n", r.Stdout)
	r, _ = b.execute(`{"commands":["true"],"stdin":"` + strings.Repeat("x", 48_000) + `"}`)
	assert.Equal(t, 0, r.ExitCode)
}

// TestCommandsTakeUnicodeUnderAny counts characters, and takes no NUL.
func TestCommandsTakeUnicodeUnderAny(t *testing.T) {
	b := newBench(t, func(o *shelltool.Options) { o.Paths = vfs.Any })
	r, _ := b.execute(`{"commands":["echo","straße 日本"]}`)
	assert.Equal(t, "straße 日本\n", r.Stdout)
	r, _ = b.execute(`{"commands":["echo","` + strings.Repeat("é", 4092) + `"]}`)
	assert.Len(t, r.Stdout, 2*4092+1)
	for _, args := range []string{`{"commands":["echo","` + strings.Repeat("é", 4093) + `"]}`, `{"commands":["echo","é\u0000"]}`} {
		_, err := b.call("shell_execute", args)
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
	}
}

func TestProgramsAnswerWhatTheyDid(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.MkdirAll(filepath.Join(b.workspace, "src"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "plain"), nil, 0o644))
	for name, c := range map[string]struct {
		args   string
		code   int
		status sandbox.Status
		out    string
		failed bool
	}{
		"exit code":        {`{"commands":["sh","-c","exit 3"]}`, 3, "exited", "", false},
		"not found":        {`{"commands":["nosuchprogram-wb"]}`, 127, "exited", "", false},
		"an option":        {`{"commands":["--privileged","id"]}`, 127, "exited", "", false},
		"not executable":   {`{"commands":["./plain"]}`, 126, "exited", "", false},
		"bash":             {`{"script":"a=(x y); echo ${a[1]}; [[ ab == a* ]] && echo yes"}`, 0, "exited", "y\nyes\n", false},
		"no shell":         {`{"commands":["echo","$(id)",";","id","|","id"]}`, 0, "exited", "$(id) ; id | id\n", false},
		"script not ASCII": {`{"script":"echo é"}`, 0, "exited", "é\n", false},
		"stdin":            {`{"commands":["cat"],"stdin":"payload"}`, 0, "exited", "payload", false},
		"no stdin":         {`{"commands":["cat"]}`, 0, "exited", "", false},
		"variables":        {`{"script":"echo $NAME-$name","env":{"NAME":"V","name":"v"}}`, 0, "exited", "V-v\n", false},
		"cwd":              {`{"script":"basename $PWD","cwd":"/workspace/src"}`, 0, "exited", "src\n", false},
		"exit 124":         {`{"commands":["sh","-c","exit 124"]}`, 124, "exited", "", false},
		"exit 137":         {`{"commands":["sh","-c","exit 137"]}`, 137, "exited", "", false},
		"killed":           {`{"commands":["sh","-c","kill -9 $$"]}`, 137, "signaled", "", true},
		"crashed":          {`{"commands":["sh","-c","kill -SEGV $$"]}`, 139, "signaled", "", true},
		"timeout":          {`{"commands":["sleep","20"],"timeout":0}`, 124, "timed_out", "", true},
		"fraction":         {`{"commands":["true"],"timeout":2.5}`, 0, "exited", "", false},
		"huge timeout":     {`{"commands":["true"],"timeout":1e308}`, 0, "exited", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, res := b.execute(c.args)
			assert.Equal(t, c.code, r.ExitCode)
			assert.Equal(t, c.status, r.Status)
			assert.Equal(t, c.out, r.Stdout)
			assert.Equal(t, c.failed, res.Failed)
			assert.Equal(t, c.status == "timed_out", r.TimedOut)
			assert.Equal(t, c.status == "signaled", r.Signal != "")
			assert.NotEmpty(t, res.Text)
		})
	}
}

func TestTheResultNamesDirectoryAndProgramButRepeatsNoScript(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.MkdirAll(filepath.Join(b.workspace, "a/b"), 0o755))
	r, _ := b.script("true # secret", `"cwd":"workspace//a/b"`)
	assert.Equal(t, "/workspace/a/b", r.Cwd)
	assert.Equal(t, []string{"bash", "-c"}, r.Command)
	r, _ = b.execute(`{"commands":["echo","hi"]}`)
	assert.Equal(t, "/workspace", r.Cwd)
	assert.Equal(t, []string{"echo", "hi"}, r.Command)
}

func TestALinkToADirectoryOfTheWorkspaceIsADirectory(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.MkdirAll(filepath.Join(b.workspace, "real"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(b.workspace, "link")))
	r, _ := b.script("pwd -P", `"cwd":"link"`)
	assert.Equal(t, "/workspace/link", r.Cwd)
	assert.True(t, strings.HasSuffix(r.Stdout, "/real\n"))
}

func TestTimesOutsideTheirRangeAreClampedAndSaid(t *testing.T) {
	b := newBench(t)
	_, res := b.execute(`{"commands":["true"],"timeout":500}`)
	assert.Contains(t, res.Text, "lowered to 120 s")
	_, res = b.execute(`{"commands":["true"],"timeout":-1}`)
	assert.Contains(t, res.Text, "raised to 1 s")
	_, res = b.execute(`{"commands":["true"],"timeout":120}`)
	assert.NotContains(t, res.Text, "lowered")
	for _, seconds := range []float64{math.Inf(1), math.Inf(-1), math.MaxFloat64} {
		_, err := b.shell.Execute(context.Background(), shelltool.ExecuteParams{Command: shelltool.Command{Script: "true"}, Timeout: &seconds})
		assert.NoError(t, err)
	}
	nan := math.NaN()
	_, err := b.shell.Execute(context.Background(), shelltool.ExecuteParams{Command: shelltool.Command{Script: "true"}, Timeout: &nan})
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestASessionMayLowerTheLongestTime(t *testing.T) {
	b := newBench(t, func(o *shelltool.Options) { o.MaxTimeout = 10 * time.Second })
	_, res := b.execute(`{"commands":["true"],"timeout":60}`)
	assert.Contains(t, res.Text, "lowered to 10 s")
	r, err := b.shell.Execute(context.Background(), shelltool.ExecuteParams{Command: shelltool.Command{Script: "true"}})
	require.NoError(t, err)
	assert.Empty(t, r.Notices)
}

func TestOutputThatFitsIsExact(t *testing.T) {
	b := newBench(t)
	r, res := b.script("head -c 32768 /dev/zero | tr '\\0' a")
	assert.Len(t, r.Stdout, 32768)
	assert.Zero(t, r.StdoutDropped)
	assert.Empty(t, r.OutputID)
	assert.NotContains(t, res.Text, "missing")
	r, _ = b.script(`printf 'a\n\n'; printf 'b' >&2`)
	assert.Equal(t, "a\n\n", r.Stdout)
	assert.Equal(t, "b", r.Stderr)
}

func TestLongOutputKeepsHeadAndTailOfEachStream(t *testing.T) {
	b := newBench(t)
	r, res := b.script("seq 1 100000; echo short >&2")
	assert.Regexp(t, `^1\n2\n`, r.Stdout)
	assert.Regexp(t, `99999\n100000\n$`, r.Stdout)
	assert.Greater(t, r.StdoutDropped, int64(500_000))
	assert.Contains(t, r.Stdout, fmt.Sprintf("\n[... %d bytes are missing here ...]\n", r.StdoutDropped))
	assert.Equal(t, "short\n", r.Stderr)
	assert.Zero(t, r.StderrDropped)
	assert.Contains(t, res.Text, r.OutputID)
	r, _ = b.script("seq 1 100000 >&2")
	assert.Regexp(t, `^1\n`, r.Stderr)
	assert.Greater(t, r.StderrDropped, int64(500_000))
	assert.Zero(t, r.StdoutDropped)
}

func TestOutputIsValidTextWhateverTheProgramWrites(t *testing.T) {
	b := newBench(t)
	r, _ := b.script("head -c 100000 /dev/urandom; printf '\\033]52;c;eA==\\007'")
	assert.True(t, utf8.ValidString(r.Stdout))
	r, _ = b.script(`printf 'é%.0s' $(seq 60000)`)
	assert.True(t, utf8.ValidString(r.Stdout))
	assert.NotContains(t, r.Stdout, "\uFFFD")
	assert.LessOrEqual(t, utf8.RuneCountInString(r.Stdout), 33_000)
}

func TestControlCharactersAreExactInTheFieldAndVisibleInTheText(t *testing.T) {
	b := newBench(t)
	r, res := b.script(`printf 'a\033[1mb\000c\r\nd\re\tf\u202e\n'`)
	assert.Equal(t, "a\x1b[1mb\x00c\r\nd\re\tf\u202e\n", r.Stdout)
	assert.True(t, strings.HasPrefix(res.Text, `a\x1b[1mb\x00c`+"\n"+`d\x0de`+"\t"+`f\u202e`+"\n"), res.Text)
	assert.NotContains(t, asJSON(t, r), "\x1b")
}

func TestOutputThatIsNotWantedIsCountedOnly(t *testing.T) {
	b := newBench(t)
	r, res := b.script("echo secret; echo more >&2", `"capture_output":false`)
	assert.NotContains(t, asJSON(t, r)+res.Text, "secret")
	assert.Equal(t, int64(7), r.StdoutDropped)
	assert.Equal(t, int64(5), r.StderrDropped)
	assert.Equal(t, 0, r.ExitCode)
}

func TestACancelledCallIsAResult(t *testing.T) {
	b := newBench(t)
	ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
	r, err := b.shell.Execute(ctx, shelltool.ExecuteParams{Command: shelltool.Command{Script: "touch begun; sleep 600"}})
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusCancelled, r.Status)
	assert.True(t, r.Failed())
}

func TestFaultsOfTheSandboxHaveTheirKindsAndSayWhatToDo(t *testing.T) {
	for cause, kind := range map[error]tool.Kind{
		sandbox.ErrUnavailable:         tool.Unavailable,
		sandbox.ErrLost:                tool.Unavailable,
		sandbox.ErrNotFound:            tool.Unavailable,
		sandbox.ErrUnsupported:         tool.Unsupported,
		sandbox.ErrInvalid:             tool.Invalid,
		context.Canceled:               tool.Closed,
		errors.New("dial /run/x.sock"): tool.Internal,
		tool.Errorf(tool.NoSpace, "x"): tool.NoSpace,
	} {
		b := newBench(t, func(o *shelltool.Options) {
			o.Runner = func(context.Context) (sandbox.Runner, error) { return nil, fmt.Errorf("why: %w", cause) }
		})
		for _, name := range []string{"shell_execute", "process_start"} {
			_, err := b.call(name, `{"script":"true"}`)
			assert.Equal(t, kind, tool.KindOf(err), cause.Error())
			assert.NotContains(t, err.Error(), "/run/")
		}
		assert.Zero(t, b.shell.Running())
	}
}

func TestALostSandboxIsAResultOnceAndThenSaysToCallAgain(t *testing.T) {
	b := newBench(t)
	done := make(chan shelltool.ExecuteResult)
	go func() {
		r, _ := b.execute(`{"script":"touch begun; sleep 600"}`)
		done <- r
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(b.workspace + "/begun"); return err == nil }, 30*time.Second, 5*time.Millisecond)
	b.host.Lose(b.spec.ID)
	r := <-done
	assert.Equal(t, sandbox.StatusSandboxLost, r.Status)
	assert.Equal(t, -1, r.ExitCode)
	_, err := b.call("shell_execute", `{"script":"true"}`)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.ErrorContains(t, err, "call again")
}

func TestManyCallsRunAtOnce(t *testing.T) {
	b := newBench(t)
	for i := range 16 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			r, err := b.shell.Execute(context.Background(), shelltool.ExecuteParams{Command: shelltool.Command{Script: fmt.Sprintf("seq 1 20000; exit %d", i)}})
			require.NoError(t, err)
			assert.Equal(t, i, r.ExitCode)
			assert.NotEmpty(t, r.OutputID)
		})
	}
}

func TestCloseCancelsWhatRunsAndRefusesTheNext(t *testing.T) {
	b := newBench(t)
	done := make(chan shelltool.ExecuteResult)
	go func() {
		r, _ := b.execute(`{"script":"touch begun; sleep 600"}`)
		done <- r
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(b.workspace + "/begun"); return err == nil }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, b.shell.Close())
	assert.Equal(t, sandbox.StatusCancelled, (<-done).Status)
	for name, args := range map[string]string{
		"shell_execute": `{"script":"true"}`, "process_start": `{"script":"true"}`, "process_read": `{"process_id":"x"}`,
	} {
		_, err := b.call(name, args)
		assert.Equal(t, tool.Closed, tool.KindOf(err), name)
	}
	assert.NoError(t, b.shell.Close())
}

func TestAShellNeedsARunnerAndFiles(t *testing.T) {
	for _, opts := range []*shelltool.Options{nil, {}} {
		_, err := shelltool.New(opts)
		assert.Error(t, err)
	}
}

// TestACommandLineInTheWrongPlaceSaysWhereItGoes: models write them as they know them from
// other tools.
func TestACommandLineInTheWrongPlaceSaysWhereItGoes(t *testing.T) {
	b := newBench(t)
	_, err := b.call("shell_execute", `{"commands":"ls -l | wc"}`)
	assert.ErrorContains(t, err, `commands must be a list, not a string; one program and its arguments, an item each, as ["ls", "-l"]`)
	assert.ErrorContains(t, err, "goes into script")
	r, _ := b.execute(`{"commands":["ls -l | wc"]}`)
	assert.Equal(t, 127, r.ExitCode)
	require.Len(t, r.Notices, 1)
	assert.Contains(t, r.Notices[0], "the whole line as script")
	r, _ = b.execute(`{"command":"echo a | tr a b"}`)
	assert.Equal(t, "b\n", r.Stdout)
	_, err = b.call("shell_execute", `{"command":"echo a","commands":["true"]}`)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}
