package python_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python/driver"
)

func TestNotebooksLanguageWorks(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.Mkdir(filepath.Join(b.workspace, "dir"), 0o700))
	for _, c := range []struct{ name, code, stdout, value string }{
		{"indented", "  x = 1\n  if x:\n    x = 2\n  x", "", "2"},
		{"indented, with a string that is not", "    s = '''\na\n  b'''\n    s", "", `'\na\n  b'`},
		{"indented, with a comment that is not", "\n# c\n  1\n# d\n  2", "", "2"},
		{"command", "!echo one; echo two", "one\ntwo\n", "<none>"},
		{"command over lines", "!echo a \\\n  b", "a b\n", "<none>"},
		{"command in a block", "for i in range(2):\n    !echo {i} $i {i * 2}", "0 0 0\n1 1 2\n", "<none>"},
		{"command in a function", "def f(q):\n  out = !echo {q}\n  return out\nf(7)", "", "['7']"},
		{"braces and dollars of the shell", "!A=1; echo a b | awk '{print $2}'; echo ${A} $A $$ | cut -d' ' -f1-2", "b\n1 1\n", "<none>"},
		{"doubled", "n = 5\n!echo {{n}} '$$n'", "{n} $n\n", "<none>"},
		{"assigned", "z = !printf 'a\\nb\\n'\n(z, z.n, z.s, z.l, _exit_code)", "", `(['a', 'b'], 'a\nb', 'a b', ['a', 'b'], 0)`},
		{"unpacked", "a, b = !printf '1\\n2\\n'\na + b", "", "'12'"},
		{"assigned to an item", "d = {}\nk = 1\nd[k] = !echo x\nd", "", "{1: ['x']}"},
		{"two marks", "!!echo a", "", "['a']"},
		{"fails", "!exit 3\n_exit_code", "", "3"},
		{"pwd", "%cd dir\nhere = %pwd\nimport os\nos.path.basename(here), os.getcwd() == here", "*", "('dir', True)"},
		{"cd back", "%cd -\nimport os\nos.path.exists('dir')", "*", "True"},
		{"env", "%env WISBOX_A=x y\n%env WISBOX_A", "env: WISBOX_A=x y\n", "'x y'"},
		{"env of commands", "!echo $WISBOX_A", "x y\n", "<none>"},
		{"all of env", "type(_) and 'WISBOX_A' in (lambda e: e)(__import__('os').environ)", "", "True"},
		{"time", "%time 1 + 1", "*Wall time: ", "2"},
		{"time of a command", "%time !echo x", "*x\n", "<none>"},
		{"time of a cell", "%%time\nq = 5\nq + 1", "*Wall time: ", "6"},
		{"time keeps names", "%time q = 8\nq", "*", "8"},
		{"time awaits", "import asyncio\n%time await asyncio.sleep(0, 5)", "*", "5"},
		{"timeit", "%timeit -n 10 -r 2 q + 1", "* per loop (mean ± std. dev. of 2 runs, 10 loops each)", "<none>"},
		{"timeit of a cell", "%%timeit -n1 -r1 n = [3]\nn.append(4)", "* of 1 run, 1 loop each)", "<none>"},
		{"timeit gives its times", "t = %timeit -q -o -n 5 -r 2 q + 1\nt.loops, len(t.all_runs)", "", "(5, 2)"},
		{"timeit leaves names", "%timeit -q -n 1 -r 1 only = 1\n'only' in globals()", "", "False"},
		{"matplotlib", "%matplotlib inline\n1", "", "1"},
		{"bash", "%%bash\nfor i in 1 2; do\n  echo $i\ndone", "1\n2\n", "<none>"},
		{"help", "def f(x):\n  'Doubles x.'\nf?", "Signature: f(x)\nType: function\n*Docstring: Doubles x.\n", "<none>"},
		{"help before", "?f", "*Docstring: Doubles x.\n", "<none>"},
		{"help with source", "f??", "*Source:\ndef f(x):\n  'Doubles x.'\n", "<none>"},
		{"help of an attribute", "import os\nos.path.join?", "*Signature: os.path.join(a, *p)", "<none>"},
		{"help of nothing", "nope.x?", "Object `nope.x` not found.\n", "<none>"},
		{"last value", "6 * 7\n", "", "42"},
		{"and then", "_ + 1", "", "43"},
		{"None is not a last value", "None", "", "<none>"},
		{"still", "_", "", "43"},
		{"a name _ of the code's own", "_ = 'mine'\n5", "", "5"},
		{"stays", "_", "", "'mine'"},
		{"await", "import asyncio\nasync def here(): return asyncio.get_running_loop()\nloop = await here()\nawait asyncio.sleep(0, 'x')", "", "'x'"},
		{"the same loop", "await here() is loop", "", "True"},
		{"strings, comments and brackets", "s = '''\n!ls\nf?\n%time x\n'''\n# !ls\nx = (7\n%3)\nif s: # it's\n    !echo ok\nx", "ok\n", "1"},
		{"input that the code redirects", "import io, sys\nsys.stdin = io.StringIO('typed\\n')\nx = input()\nsys.stdin = sys.__stdin__\nx", "", "'typed'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.keptCode(t, c.code)
			require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
			assert.Equal(t, c.value, value(resp))
			parts := strings.Split(c.stdout, "*")
			assert.True(t, strings.HasPrefix(resp.Stdout, parts[0]), resp.Stdout)
			for _, part := range parts[1:] {
				assert.Contains(t, resp.Stdout, part)
			}
			if len(parts) == 1 {
				assert.Equal(t, c.stdout, resp.Stdout)
			}
		})
	}
}

func TestWhatNotebooksHaveNotSaysSo(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ name, code, says string }{
		{"a magic", "1\n%nope x", "File \"<code>\", line 2, in <module>\n    %nope x\nUsageError: %nope is no magic here; there are %cd, %env,"},
		{"a cell magic", "%%nope\nx", "UsageError: %%nope is no magic here; there are %%bash, %%sh, %%time, %%timeit"},
		{"cd nowhere", "%cd nope", "FileNotFoundError"},
		{"cd back from the start", "%cd -", "UsageError: %cd -: there is no directory before this one"},
		{"an unset variable", "%env WISBOX_NOPE", "UsageError: %env: there is no variable WISBOX_NOPE"},
		{"timeit of nothing", "%timeit -n 5", "UsageError: %timeit: give a statement"},
		{"bash that fails", "%%bash\nfalse", "CalledProcessError"},
		{"an error in a timed cell", "%%time\n\n1/0", "line 3, in <module>\n    1/0"},
		{"an error in a timed line", "x = 1\n%time 1/0", "line 2, in <module>"},
		{"an error behind a command", "!true\n1/0", "line 2, in <module>\n    1/0"},
		{"no Python behind a command", "!true\nx x", "line 2\n    x x"},
		{"an open string behind a command", "!true\ns = '''\n!ls", "line 2"},
		{"an indented error", "  x = 1\n  x x", "line 2\n    x x"},
		{"an indented block without end", "  if 1:\n  x", "after 'if' statement on line 1"},
		{"not indented as a whole", "  x = 1\nx", "IndentationError: unexpected indent"},
		{"two await at once", "import asyncio\nasync def f():\n  %time await asyncio.sleep(0)\nawait f()\n", "SyntaxError|UsageError"},
		{"input", "input('name? ')", "EOFError: input() has nobody to ask here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.code(t, c.code)
			require.Equal(t, evaltool.StatusException, resp.Status)
			found := false
			for said := range strings.SplitSeq(c.says, "|") {
				found = found || strings.Contains(resp.Stderr, said)
			}
			assert.True(t, found, resp.Stderr)
		})
	}
}

func TestEvaluationsAreCounted(t *testing.T) {
	b := newBench(t)
	assert.Equal(t, int64(1), b.code(t, "1").Count)
	for n, code := range []string{"1", "1/0", "x x", "2"} {
		assert.Equal(t, int64(n+1), b.keptCode(t, code).Count)
	}
}

// TestPlainPythonIsAnsweredAsCPythonAnswers compares 10,000 random snippets that are full of text that looks like
// magics, in strings, comments and brackets.
func TestPlainPythonIsAnsweredAsCPythonAnswers(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "driver.py")
	require.NoError(t, os.WriteFile(source, []byte(driver.Source()), 0o600))
	answers := func(more ...string) [][]byte {
		cmd := exec.Command("python3", append([]string{"-I", "-W", "ignore", "testdata/plain.py", "1", "10000"}, more...)...)
		cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		return bytes.Split(out, []byte("\n"))
	}
	want, got := answers(), answers(source)
	require.Len(t, want, 10_001)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, string(want[i]), string(got[i]))
	}
}

func TestACommandEndsWithItsInterrupt(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "z = 5")
	nap := fmt.Sprintf("61.%d", os.Getpid()) // unique to this test
	for _, code := range []string{"!sleep 61.5", "!trap '' INT; sleep 61.5 & sleep 61.5", "x = !sleep 61.5 | cat", "%%bash\nsleep 61.5", "%time !sleep 61.5", "%timeit __import__('time').sleep(61.5)"} {
		code = strings.ReplaceAll(code, "61.5", nap)
		resp := b.eval(t, evaltool.Request{Code: code, Kept: true, Timeout: 500 * time.Millisecond})
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status, code)
		assert.Contains(t, strings.Join(resp.Notes, " "), "still there", code)
		assert.Equal(t, "5", value(b.keptCode(t, "z")))
	}
	left := b.keptCode(t, "n = !ps -eo args | grep -c '^[s]leep "+nap+"$'\nn")
	assert.Equal(t, "['0']", value(left))
}
