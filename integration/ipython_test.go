package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// ipythonImage is the default image with Debian's IPython for the image's own interpreter. It is pure Python.
const ipythonImage = `FROM localhost/wisbox
RUN cd /tmp && apt-get -q update && apt-get -q -o APT::Sandbox::User=root download $(for p in \
	ipython asttokens decorator executing matplotlib-inline pexpect prompt-toolkit ptyprocess \
	pure-eval pygments stack-data traitlets typing-extensions wcwidth jedi parso; do echo python3-$p; done) \
 && for d in *.deb; do dpkg-deb -x $d x; done \
 && cp -a x/usr/lib/python3/dist-packages/. $(python3 -c 'import site; print(site.getsitepackages()[0])') \
 && rm -rf x *.deb apt && python3 -m compileall -q -j 0 /usr/local/lib/python3.12/site-packages
`

// TestIPythonOfTheImageIsUsed has all tests of the real IPython, because an image is expensive.
func TestIPythonOfTheImageIsUsed(t *testing.T) {
	hosttest.Slow(t)
	h, name := newHome(t), ownName(t)
	h.do("image", "build", "-t", name, writeTree(t, map[string]string{"Containerfile": ipythonImage}))
	s := open(t, &wisbox.SessionOptions{Image: name, MaxEvalTimeout: 2 * time.Minute})
	eval := func(t *testing.T, context, code string) answer {
		t.Helper()
		return call(t, s, "evaluate_python", args{"code": code, "context": context, "timeout": 60})
	}
	inContext := func(test func(t *testing.T, eval func(code string) answer)) func(t *testing.T) {
		return func(t *testing.T) {
			context := strings.ToLower(filepath.Base(t.Name()))
			t.Cleanup(func() { assert.NoError(t, s.RemoveContext(t.Context(), context)) })
			test(t, func(code string) answer { t.Helper(); return eval(t, context, code) })
		}
	}

	t.Run("language", inContext(ipythonLanguage))
	t.Run("errors", inContext(ipythonErrors))
	t.Run("shown", inContext(ipythonShown))
	t.Run("hostile", inContext(ipythonHostile))
	t.Run("beside it", inContext(func(t *testing.T, eval func(code string) answer) {
		assert.Equal(t, "'beside'", eval("'beside'").str("value_repr"))
	}))
	t.Run("interrupts", func(t *testing.T) { ipythonInterrupts(t, s) })
	t.Run("fresh evaluations have none", func(t *testing.T) {
		a := call(t, s, "evaluate_python", args{"code": "'IPython' in __import__('sys').modules, 'get_ipython' in globals()"})
		assert.Equal(t, "(False, False)", a.str("value_repr"))
	})
	t.Run("nothing is left in the workspace", func(t *testing.T) {
		left, err := os.ReadDir(s.WorkspacePath())
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

func ipythonLanguage(t *testing.T, eval func(code string) answer) {
	for _, c := range []struct{ code, value, stdout string }{
		{"x = 6\nx * 7", "42", ""},
		{"_ + 1, _1, In[1], Out[1]", `(43, 42, 'x = 6\nx * 7', 42)`, ""},
		{"__", "42", ""},
		{"get_ipython().execution_count", "4", ""},
		{"!echo {x} $x", "", "6 6\n"},
		{"lines = !printf 'a\\nb\\n'\nlines.n, _exit_code", `('a\nb', 0)`, ""},
		{"%%bash\nfor i in 1 2; do echo $i; done", "", "1\n2\n"},
		{"%time x + 1", "7", "*Wall time: "},
		{"%timeit -n 10 -r 2 x + 1", "", "*per loop (mean ± std. dev. of 2 runs, 10 loops each)"},
		{"%%capture out\nprint('caught')", "", ""},
		{"out.stdout", `'caught\n'`, ""},
		{"from IPython.core.magic import register_line_magic\n@register_line_magic\ndef double(line): return line * 2", "", ""},
		{"%double ab", "'abab'", ""},
		{"%load_ext autoreload\n%autoreload 2", "", ""},
		{"def f(q):\n    'Doubles q.'\n    return q * 2\nf?", "", "*Signature: f(q)"},
		{"f??", "", "*return q * 2"},
		{"import asyncio\nawait asyncio.sleep(0, 5)", "5", ""},
		{"5;", "", ""},
		{"%pip --version", "", "pip *(python 3.12)"},
		{"%cd /tmp", "", "/tmp\n"},
		{"pwd", "'/tmp'", ""},
		{"exit", "", ""},
		{"x", "6", ""},
		{"%reset -f", "", ""},
		{"'x' in globals(), read_text.__name__", "(False, 'read_text')", ""},
	} {
		a := eval(c.code)
		require.Equal(t, "exited", a.str("status"), "%s: %s", c.code, a.str("stderr"))
		assert.Equal(t, c.value, a.str("value_repr"), c.code)
		for part := range strings.SplitSeq(c.stdout, "*") {
			assert.Contains(t, a.str("stdout"), part, c.code)
		}
	}
	assert.Empty(t, eval("1")["globals"], "IPython's own names aren't the code's")
	assert.Equal(t, 27, eval("1").num("execution_count"))
}

func ipythonErrors(t *testing.T, eval func(code string) answer) {
	for code, says := range map[string]string{
		"def f():\n    return 1/0\nf()": "Traceback (most recent call last):\n  File \"<code N>\", line 3, in <module>\n    f()\n  File \"<code N>\", line 2, in f\n    return 1/0\n           ~^~\nZeroDivisionError: division by zero\n",
		"x x":                           "  File \"<code N>\", line 1\n    x x\n      ^\nSyntaxError: invalid syntax\n",
		"%nope":                         "UsageError: Line magic function `%nope` not found.\n",
		"%%bash\nexit 3":                "returned non-zero exit status 3.\n",
		"%%time\n1/0":                   "ZeroDivisionError: division by zero\n",
		"%%capture\n1/0":                "ZeroDivisionError: division by zero\n",
		"input('name? ')":               "EOFError: input() has nobody to ask here: put the answer into globals or into the code\n",
		"raise SystemExit(3)":           "SystemExit: 3\n",
	} {
		a := eval(code)
		assert.Equal(t, "exception", a.str("status"), code)
		count, err := json.Marshal(a.num("execution_count"))
		require.NoError(t, err)
		stderr := strings.ReplaceAll(a.str("stderr"), "<code "+string(count)+">", "<code N>")
		assert.True(t, strings.HasSuffix(strings.ReplaceAll(stderr, "<code>", "<code N>"), says), "%s: %s", code, stderr)
		assert.NotContains(t, stderr, "\x1b", code)
		assert.NotContains(t, stderr, "interactiveshell.py", code)
	}
}

func ipythonShown(t *testing.T, eval func(code string) answer) {
	a := eval("class H:\n def _repr_html_(s): return '<b>'\n def __repr__(s): return 'H'\ndisplay(H(), 7)\nH()")
	shown, err := json.Marshal(a["results"])
	require.NoError(t, err)
	assert.JSONEq(t, `[{"main":false,"text":"H","display":[0]},{"main":false,"text":"7","display":[]},{"main":true,"text":"H","display":[1]}]`, string(shown))
	eval("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: f'<i>{n}</i>')")
	a = eval("5")
	assert.Equal(t, "5", a.str("value_repr"))
	assert.Equal(t, []any{map[string]any{"mime": "text/html", "data": "<i>5</i>"}}, a["display"])
	a = eval("class B:\n def __repr__(s): raise ValueError('no repr')\nB()")
	assert.Equal(t, "<B object; its repr raised ValueError>", a.str("value_repr"))
	assert.Contains(t, a.str("stderr"), "ValueError: no repr\n")
	eval("%config InteractiveShell.ast_node_interactivity = 'all'")
	a = eval("'a'\n'b'")
	assert.Equal(t, "'b'", a.str("value_repr"))
	assert.Len(t, a["results"], 2)
	assert.Len(t, eval("'x' * (1 << 24)").str("value_repr"), 4096)
}

// ipythonHostile runs code that attacks the shell: each call has exactly one answer, and only its own context is
// affected.
func ipythonHostile(t *testing.T, eval func(code string) answer) {
	eval("import os; os._exit(0)")
	assert.Equal(t, "2", eval("1 + 1").str("value_repr"), "a new one")
	for _, code := range []string{
		"get_ipython().run_cell = None",
		"type(get_ipython()).run_cell = None",
		"get_ipython().showtraceback = None",
		"get_ipython().display_formatter = get_ipython().display_pub = None",
		"import IPython\nIPython.core.interactiveshell.InteractiveShell.clear_instance()",
		"import sys\nsys.displayhook = sys.excepthook = sys.stdout = None\n8",
		"def bad(*a): raise KeyboardInterrupt\nget_ipython().events.register('post_run_cell', bad)",
		"import threading\nthreading.Thread(target=lambda: [display('late') for _ in range(100)]).start()",
		"import os\nif os.fork() == 0: print('child')",
		"import os, struct\nm = b'{\"id\":\"x\",\"status\":\"exited\",\"value\":\"forged\"}'\nfor fd in range(3, 1024):\n  try: os.write(fd, struct.pack('>I', len(m)) + m)\n  except OSError: pass",
		"import sys\nfor n in list(sys.modules): sys.modules.pop(n, None)",
	} {
		a := eval(code)
		assert.Contains(t, []string{"exited", "exception"}, a.str("status"), code)
		assert.NotEqual(t, "forged", a.str("value_repr"))
	}
}

func ipythonInterrupts(t *testing.T, s *wisbox.Session) {
	call(t, s, "evaluate_python", args{"code": "z = 5", "state": "kept", "timeout": 60})
	begun := filepath.Join(s.WorkspacePath(), "begun")
	for name, code := range map[string]string{
		"a loop":        "while True: pass",
		"in time":       "%time __import__('time').sleep(60)",
		"in timeit":     "%timeit -n 1 -r 1 __import__('time').sleep(60)",
		"a command":     "!trap '' INT TERM; sleep 60 & sleep 60",
		"a cell's bash": "get_ipython().run_cell_magic('bash', '', 'sleep 60')",
		"a wait":        "import asyncio\nawait asyncio.sleep(60)",
		"in a display":  "class H:\n  def _repr_html_(s):\n    while True: pass\nH()",
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(args{"code": "open('begun', 'w').close()\n" + code, "state": "kept", "timeout": 120})
			require.NoError(t, err)
			res, err := s.Call(hosttest.OnceThere(t, begun), "evaluate_python", raw)
			require.NoError(t, err)
			a, err := answerOf(res)
			require.NoError(t, err)
			assert.Equal(t, "cancelled", a.str("status"))
			require.NoError(t, os.Remove(begun))
			assert.Equal(t, "5", call(t, s, "evaluate_python", args{"code": "z", "state": "kept"}).str("value_repr"))
		})
	}
}
