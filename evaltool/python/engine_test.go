package python_test

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

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// bench is an engine with a sandbox on the host itself.
type bench struct {
	*python.Engine
	workspace string
	host      *sandboxtest.Host
	prelude   string // Python before the driver
}

const boxID = "eval-test"

// newBench makes the test parallel: call it once per test.
func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	host, dir := sandboxtest.NewHost(), t.TempDir()
	box, err := host.Create(context.Background(), sandbox.Spec{ID: boxID, Image: "host", Workspace: dir})
	require.NoError(t, err)
	b := &bench{workspace: dir, host: host}
	b.Engine = python.New(&python.Options{Runner: func(context.Context) (sandbox.Runner, error) { return preluded{box, b}, nil }})
	t.Cleanup(func() {
		assert.NoError(t, b.Close())
		assert.NoError(t, box.Close(context.Background()))
	})
	return b
}

// preluded runs drivers with a few lines of Python before them.
type preluded struct {
	sandbox.Runner
	bench *bench
}

func (p preluded) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	return p.Runner.Run(ctx, p.extended(cmd))
}

func (p preluded) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	return p.Runner.Start(ctx, p.extended(cmd))
}

func (p preluded) extended(cmd sandbox.Cmd) sandbox.Cmd {
	longer := *cmd.Python
	longer.Source = p.bench.prelude + "\n" + longer.Source
	cmd.Python = &longer
	return cmd
}

func (b *bench) eval(t *testing.T, req evaltool.Request) evaltool.Response {
	t.Helper()
	if req.Timeout == 0 {
		req.Timeout = time.Minute
	}
	if req.Sandbox == "" {
		req.Sandbox = evaltool.SandboxContainer
	}
	resp, err := b.Evaluate(context.Background(), req)
	require.NoError(t, err)
	return resp
}

func (b *bench) code(t *testing.T, code string) evaltool.Response {
	t.Helper()
	return b.eval(t, evaltool.Request{Code: code})
}

func (b *bench) keptCode(t *testing.T, code string) evaltool.Response {
	t.Helper()
	return b.eval(t, evaltool.Request{Code: code, Kept: true})
}

func value(resp evaltool.Response) string {
	if resp.Value == nil {
		return "<none>"
	}
	return *resp.Value
}

func TestAValueIsCutAsItsReprWouldBe(t *testing.T) {
	b := newBench(t)
	for _, v := range []string{
		"[]", "()", "{}", "set()", "frozenset()", "(1,)", "(1, 2)", "[[1, ('a', b'b')], {2: {3.5, 3.5}}]", "frozenset({1})", "{'a': None, (1,): [True]}",
		"'x' * 5000", "b'x' * 5000", "['x' * 3000] * 3", "list(range(5000))", "{i: str(i) for i in range(2000)}", "[[]] * 2000", "'\\'' + 'x' * 4090",
		"a = []; a.append(a); a", "a = {}; a[1] = [a]; a", "a = ([],); a[0].append(a); a", "[bytearray(b'ab')]", "type('L', (list,), {})([1, 2])",
	} {
		at := strings.LastIndex(v, ";") + 1
		resp := b.code(t, v[:at]+"v = "+strings.TrimSpace(v[at:])+"\nr = repr(v)\nprint(r if len(r) <= 4096 else r[:4093] + '...', end='')\nv")
		assert.Equal(t, resp.Stdout, value(resp), v)
		assert.NotEmpty(t, resp.Stdout, v)
	}
	deep := b.code(t, "v = []\nfor _ in range(100000): v = [v]\nv")
	assert.Equal(t, strings.Repeat("[", 4093)+"...", value(deep))
	assert.Equal(t, "2", value(b.keptCode(t, "huge = [b'x' * (1 << 20)] * 100000; 1 + 1")), "a repr of 100 GB is never made")
}

func TestTheValueIsTheReprOfAFinalExpression(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ name, code, value string }{
		{"expression", "1 + 1", "2"},
		{"assignment", "x = 1", "<none>"},
		{"not the last", "1 + 1\nx = 3", "<none>"},
		{"none", "None", "<none>"},
		{"empty", "", "<none>"},
		{"comment", "# nothing", "<none>"},
		{"over lines", "(\n 1 +\n 2\n)", "3"},
		{"after a semicolon", "x = 2; x * 3", "6"},
		{"text", "'a'", "'a'"},
		{"in a block", "if True:\n\tx = 1\nx", "1"},
		{"await", "import asyncio\nawait asyncio.sleep(0, 7)", "7"},
		{"await before", "import asyncio\nx = await asyncio.sleep(0, 7)\nx + 1", "8"},
		{"module name", "__name__", "'__main__'"},
		{"arguments", "import sys; sys.argv", "['']"},
		{"pickled function", "import pickle\ndef f(): return 4\npickle.loads(pickle.dumps(f))()", "4"},
		{"source", "import inspect\ndef f():\n    return 4\ninspect.getsource(f)", `'def f():\n    return 4\n'`},
		{"exit of zero", "import sys; sys.exit(0)", "<none>"},
		{"exit without code", "exit()", "<none>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.keptCode(t, c.code)
			assert.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
			assert.Equal(t, c.value, value(resp))
			assert.Empty(t, resp.Stderr)
		})
	}
}

func TestWhatRaisesIsAnExceptionWithTheUsersOwnLines(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ name, code, says string }{
		{"syntax", "def def def", "SyntaxError: invalid syntax"},
		{"name", "nope", "NameError: name 'nope' is not defined"},
		{"line", "x = 1\nx / 0", "line 2, in <module>\n    x / 0"},
		{"recursion", "def f(n): return f(n+1)\nf(0)", "RecursionError: maximum recursion depth exceeded"},
		{"mutual recursion", "def f(): g()\ndef g(): f()\nf()", "RecursionError"},
		{"long text", "raise ValueError('x' * 100_000 + 'end')", "end"},
		{"deep source", "(" + strings.Repeat("-", 50_000) + "1)", "Error"},
		{"input", "input()", "EOFError"},
		{"repr", "class A:\n def __repr__(s): raise ValueError('no')\nA()", "ValueError: no"},
		{"exit code", "import sys; sys.exit(3)", "SystemExit: 3"},
		{"exit of a repr", "class A:\n def __repr__(s): raise SystemExit\nA()", "SystemExit: None"},
		{"exit text", "import sys; sys.exit('stop here')", "stop here"},
		{"interrupt", "raise KeyboardInterrupt", "KeyboardInterrupt"},
		{"its text raises", "class E(Exception):\n def __str__(s): raise s\nraise E", "E"},
		{"cause", "try:\n 1/0\nexcept Exception as e:\n raise ValueError('v') from e", "ZeroDivisionError"},
		{"group", "raise BaseExceptionGroup('g', [ValueError('v')])", "v"},
		{"helper", "read_text('missing')", "line 1, in <module>\n    read_text('missing')\nFileNotFoundError"},
		{"memory", "b'x' * (1 << 60)", "MemoryError"},
		{"huge int", "10 ** 5000", "4300 digits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.keptCode(t, c.code)
			assert.Equal(t, evaltool.StatusException, resp.Status)
			assert.Contains(t, resp.Stderr, c.says)
			assert.NotContains(t, resp.Stderr, "valuate", "no frame of the driver")
			assert.LessOrEqual(t, len([]rune(resp.Stderr)), evaltool.StreamChars)
			assert.Nil(t, resp.Value)
		})
	}
}

func TestACoroutineThatNobodyAwaitsIsNamedByTheUsersCode(t *testing.T) {
	b := newBench(t)
	for code, line := range map[string]string{
		"async def f(): pass\nf()\n1":      "<code>:2: RuntimeWarning: coroutine 'f' was never awaited\n  f()\n",
		"\nasync def f(): pass\nx = f()\n": "<code>:2: RuntimeWarning: coroutine 'f' was never awaited\n  async def f(): pass\n",
	} {
		resp := b.code(t, code)
		assert.Equal(t, evaltool.StatusExited, resp.Status)
		assert.Equal(t, line, resp.Stderr)
	}
}

func TestStreamsAreApartExactAndCut(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ name, code, stdout, stderr string }{
		{"stdout", "print('hi')", "hi\n", ""},
		{"stderr", "import sys; print('e', file=sys.stderr)", "", "e\n"},
		{"no newline", "print('x', end='')", "x", ""},
		{"binary", `import os; os.write(1, b'a\xffb')`, "a\uFFFDb", ""},
		{"child", "import os; os.system('echo child; echo err >&2')", "child\n", "err\n"},
		{"surrogate", `print('\ud800')`, "\\ud800\n", ""},
		{"exactly the limit", "print('x' * 4095)", strings.Repeat("x", 4095) + "\n", ""},
		{"over it", "print('x' * 4096)", strings.Repeat("x", 4093) + "...", ""},
		{"wide characters", "print('\U0001F600' * 5000)", strings.Repeat("\U0001F600", 4093) + "...", ""},
		{"long stderr", "import sys; n = sys.stderr.write('x' * 5000)", "", strings.Repeat("x", 4093) + "..."},
		{"replaced stdout", "import sys; sys.stdout = None", "", ""},
		{"exit handler", "import atexit; _ = atexit.register(print, 'bye')", "bye\n", ""},
		{"forked", "import os\nif os.fork(): os.wait()\nprint('both')", "both\nboth\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			resp := b.code(t, c.code)
			assert.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
			assert.Equal(t, c.stdout, resp.Stdout)
			assert.Equal(t, c.stderr, resp.Stderr)
		})
	}
}

func TestATracebackIsKeptWholeAfterAFlood(t *testing.T) {
	resp := newBench(t).code(t, "import sys; sys.stderr.write('x' * 100_000)\n1/0")
	assert.Contains(t, resp.Stderr, "x...\nTraceback")
	assert.Contains(t, resp.Stderr, "ZeroDivisionError: division by zero")
	assert.Len(t, resp.Stderr, evaltool.StreamChars)
}

func TestEveryWayOfNotEndingEndsInTime(t *testing.T) {
	b := newBench(t)
	var running sync.WaitGroup
	defer running.Wait()
	few := make(chan struct{}, 6) // they mostly wait
	for _, c := range []struct{ name, code string }{
		{"loop", "while True: pass"},
		{"sleep", "import time; time.sleep(60)"},
		{"loop in C", "sum(range(10 ** 12))"},
		{"regular expression", "import re; re.match('(a+)+$', 'a' * 40 + 'b')"},
		{"ignored signals", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass"},
		{"caught", "import time\nwhile True:\n try: time.sleep(9)\n except BaseException: pass"},
		{"its own fork", "import os, time\nos.fork()\nos.fork()\nwhile True: time.sleep(1)"},
		{"flood", "import sys\nwhile True: sys.stdout.write('x' * 65536)"},
		{"finalizer", "class A:\n def __del__(s):\n  while True: pass\na = A()"},
		{"repr", "class A:\n def __repr__(s):\n  while True: pass\nA()"},
		{"exit handler", "import atexit, time; atexit.register(time.sleep, 60)"},
		{"await", "import asyncio\nawait asyncio.sleep(60)"},
	} {
		few <- struct{}{}
		running.Go(func() {
			defer func() { <-few }()
			began := time.Now()
			resp, err := b.Evaluate(context.Background(), evaltool.Request{
				Code: "print('begun')\n" + c.code, Timeout: 1500 * time.Millisecond, Sandbox: evaltool.SandboxContainer,
			})
			assert.NoError(t, err)
			assert.Equal(t, evaltool.StatusTimedOut, resp.Status, c.name)
			assert.True(t, strings.HasPrefix(resp.Stdout, "begun\n"), "what was printed stays: %s", c.name)
			assert.Equal(t, evaltool.TimeoutText, resp.Stderr, c.name)
			assert.Empty(t, resp.Writes)
			assert.Less(t, time.Since(began), 30*time.Second, c.name)
		})
	}
}

func TestWhatTheCodeDoesToItsProcessLeavesOneResult(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name, code, status, value string
		ended                     bool
	}{
		{"closes stdout", "import os\nos.close(1)\n5", "exited", "5", false},
		{"closes the low descriptors", "import os\nos.closerange(0, 256)\n5", "exited", "5", false},
		{"writes to 3 and 4", "import os\nfor fd in (3, 4):\n try: os.write(fd, b'junk' * 99)\n except OSError: pass\n5", "exited", "5", false},
		{"closes everything", "import os\nos.closerange(0, 4096)\n5", "exited", "<none>", true},
		{"leaves", "import os; os._exit(0)", "exited", "<none>", true},
		{"leaves badly", "import os; os._exit(9)", "exited", "<none>", true},
		{"kills itself", "import os, signal; os.kill(os.getpid(), 11)", "signaled", "<none>", true},
		{"breaks json", "import json\njson.dumps = None\n5", "exited", "<none>", true},
		{"a thread stays", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n5", "exited", "5", false},
		{"takes the modules away", "import sys\nsys.modules.clear()\n5", "exited", "5", false},
		{"floods the channel", channelWriter + "for _ in range(40): write(b'\\0\\0\\1\\0' + b'x' * 256)\n5", "exited", "5", false},
		{"announces a huge answer", channelWriter + "write(b'\\xff\\xff\\xff\\xff')\n5", "exited", "<none>", true},
		{"answers without the id", channelWriter + `write(b'\0\0\0\x1a{"id":"","status":"exited"}')` + "\nos._exit(0)", "exited", "<none>", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			resp := b.code(t, c.code)
			assert.Equal(t, c.status, resp.Status, resp.Stderr)
			assert.Equal(t, c.ended, resp.Ended)
			assert.Equal(t, c.value, value(resp))
			assert.Equal(t, c.ended, resp.Failed())
		})
	}
}

// channelWriter finds the driver's own descriptor, as hostile code would.
const channelWriter = `import os, stat
def write(data):
    for fd in map(int, os.listdir('/proc/self/fd')):
        try:
            if fd > 60 and stat.S_ISFIFO(os.fstat(fd).st_mode): os.write(fd, data)
        except OSError: pass
`

func TestGlobalsComeBackAsJSONOrRepr(t *testing.T) {
	resp := newBench(t).code(t, `
import os, math
from dataclasses import dataclass
class C: pass
def f(): pass
l, d, t, n, b, s = [1, [2.5]], {"a": [1]}, (1, "x"), None, True, "hé"
sets, cpx, nan, keys, raw = {1}, 3+4j, float("nan"), {1: 2}, b"x"
deep = {"a": {1}}
cycle = []
cycle.append(cycle)
big, bigtext, bigrepr, bigint = [0] * 10**7, "x" * 10**7, {i for i in range(10**5)}, 10**5000
_private = lam = lambda: 1
class Bad:
    def __repr__(self): raise ValueError
bad = Bad()
class Leaves:
    def __repr__(self): raise SystemExit(3)
leaves = Leaves()
nämé = 1
`)
	require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
	for name, begins := range map[string]string{
		"big": "!repr:[0, 0, ", "bigtext": "!repr:'xxx", "bigrepr": "!repr:{0, 1, ", "bigint": "!repr:<int object; its repr raised ValueError>",
	} {
		text := resp.Globals[name]
		assert.True(t, strings.HasPrefix(text, begins), name)
		if name != "bigint" {
			assert.Len(t, text, evaltool.StreamChars, name)
			assert.True(t, strings.HasSuffix(text, "..."), name)
		}
		delete(resp.Globals, name)
	}
	assert.Equal(t, map[string]string{
		"l": "[1, [2.5]]", "d": `{"a": [1]}`, "t": `[1, "x"]`, "n": "null", "b": "true", "s": `"hé"`,
		"sets": "!repr:{1}", "cpx": "!repr:(3+4j)", "nan": "!repr:nan", "keys": "!repr:{1: 2}", "raw": "!repr:b'x'",
		"deep": "!repr:{'a': {1}}", "cycle": "!repr:[[...]]", "bad": "!repr:<Bad object; its repr raised ValueError>",
		"leaves": "!repr:<Leaves object; its repr raised SystemExit>", "nämé": "1",
	}, resp.Globals)
	assert.Zero(t, resp.Dropped)
}

func TestAfterAnExceptionTheGlobalsAreWhatWasSetBefore(t *testing.T) {
	b := newBench(t)
	for _, kept := range []bool{false, true} {
		for code, want := range map[string]map[string]string{
			"x = 1\nx = [x]\n1/0\nx = 3":                             {"x": "[1]", "given": "7"},
			"def f():\n  global y\n  y = 2\n  raise ValueError\nf()": {"y": "2", "given": "7"},
			"z = 1; import sys; sys.exit(3)":                         {"z": "1", "given": "7"},
			"nope nope":                                              {"given": "7"},
		} {
			resp := b.eval(t, evaltool.Request{Code: code, Globals: map[string]string{"given": "7"}, Kept: kept, Context: fmt.Sprint(len(code))})
			assert.Equal(t, evaltool.StatusException, resp.Status, code)
			assert.Equal(t, want, resp.Globals, code)
		}
	}
	b.eval(t, evaltool.Request{Code: "pass", Kept: true}) // an interpreter that is still starting can't be interrupted
	loops := b.eval(t, evaltool.Request{Code: "class A:\n def __repr__(s):\n  while True: pass\na = A()\n1/0", Kept: true, Timeout: 2 * time.Second})
	assert.Equal(t, evaltool.StatusTimedOut, loops.Status)
	assert.Contains(t, strings.Join(loops.Notes, " "), "still there", "a repr that never ends ends with the call")
	flood := b.eval(t, evaltool.Request{Code: "for i in range(64): write_text(f'f{i}', '\\0' * 48_000)\nraise ValueError('told')", Timeout: 2 * time.Minute})
	assert.Equal(t, evaltool.StatusException, flood.Status)
	assert.Contains(t, flood.Stderr, "ValueError: told", "however much was queued")
	assert.Len(t, flood.Writes, 64)
}

func TestAllGlobalsTogetherAreBounded(t *testing.T) {
	b := newBench(t)
	resp := b.code(t, "for i in range(20): globals()[f'v{i}'] = 'x' * 4000")
	total := 0
	for _, text := range resp.Globals {
		total += len(text)
	}
	assert.LessOrEqual(t, total, 32*1024)
	assert.Equal(t, 21, len(resp.Globals)+resp.Dropped)
	assert.Positive(t, resp.Dropped)
	assert.Equal(t, "v19", resp.DroppedNames[resp.Dropped-1])

	// Short ones have room first.
	resp = b.code(t, "for i in range(30): globals()[f'v{i}'] = [i] * 4000\nshort = 1\nlast = 2")
	assert.Equal(t, "1", resp.Globals["short"])
	assert.Equal(t, "2", resp.Globals["last"])
	assert.Contains(t, resp.Globals["v0"], "!repr:[0, 0")
	assert.Equal(t, 33, len(resp.Globals)+resp.Dropped)
	assert.Len(t, resp.DroppedNames, 20)
}

// Names count against the same limits: they never displace the rest of the answer.
func TestNamesOfGlobalsAreBounded(t *testing.T) {
	b := newBench(t)
	for name, code := range map[string]string{
		"one long name":          "globals()['x' * 100_000] = 1\na = 2",
		"many names":             "a = 2\nfor i in range(30_000): globals()[f'v{i}'] = 1",
		"many long names":        "a = 2\nfor i in range(9_000): globals()['x' * 4000 + str(i)] = 1",
		"a name of another type": "a = 2\nclass S(str):\n    def startswith(self, *_): raise ValueError\n    def __len__(self): return -1\nglobals()[S('x')] = 1",
	} {
		resp := b.code(t, code+"\na")
		require.Equal(t, evaltool.StatusExited, resp.Status, "%s: %s", name, resp.Stderr)
		require.NotNil(t, resp.Value, "%s: %v", name, resp.Notes)
		assert.Equal(t, "2", *resp.Value, name)
		assert.Equal(t, "2", resp.Globals["a"], name)
		total := 0
		for name, text := range resp.Globals {
			total += len(name) + len(text)
		}
		assert.LessOrEqual(t, total, 32*1024, name)
	}
}

func TestReadsAreGlobalsUnderTheirPath(t *testing.T) {
	b := newBench(t)
	files := []evaltool.File{{Path: "d/in.txt", Text: "hi"}, {Path: "plain", Text: "é\r\n"}}
	resp := b.eval(t, evaltool.Request{Code: `(reads["d/in.txt"], globals()["d/in.txt"], plain, len(reads))`, Reads: files})
	assert.Equal(t, `('hi', 'hi', 'é\r\n', 2)`, value(resp))
	assert.Empty(t, resp.Globals)
}

func TestALargeReadIsGivenWhole(t *testing.T) {
	text := strings.Repeat("0123456789abcde\n", 10<<20/16)
	resp := newBench(t).eval(t, evaltool.Request{Code: `(len(big), big[-6:])`, Reads: []evaltool.File{{Path: "big", Text: text}}})
	assert.Equal(t, `(10485760, 'abcde\n')`, value(resp))
}

func TestFieldsOfTemplatesAreRenderedAsByFormat(t *testing.T) {
	b := newBench(t)
	for _, sandbox := range []string{evaltool.SandboxContainer, evaltool.SandboxRestricted} {
		resp := b.eval(t, evaltool.Request{Sandbox: sandbox, Code: "t = 'a\\nb'\nn = 6 * 7\nd = {'k': [1, 'é'], 'x y': 2.5}\nw = 6\nu = '\\ud800'", Fields: []string{
			"t", "n", "missing", "n:03d", "n!r:>4", "t!r", "t!a", "d[k]", "d[k][1]", "d[x y]:.2f", "n:{w}", "n:>{w}{missing}", "d[nope]", "n[0]", "t:d", "u", "d[k][1]!a",
		}})
		assert.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
		assert.Equal(t, map[string]string{
			"t": "a\nb", "n": "42", "n:03d": "042", "n!r:>4": "  42", "t!r": `'a\nb'`, "t!a": `'a\nb'`, "d[k]": "[1, 'é']", "d[k][1]": "é", "d[x y]:.2f": "2.50", "n:{w}": "    42",
			"d[k][1]!a": `'\xe9'`,
		}, resp.Fields)
		for field, says := range map[string]string{"d[nope]": "KeyError: 'nope'", "n[0]": "TypeError: ", "t:d": "ValueError: ", "u": "UnicodeEncodeError: "} {
			assert.Contains(t, resp.Faults[field], says, field)
		}
		assert.Len(t, resp.Faults, 4, "a missing global has no text and is no fault")
	}
}

func TestNothingReachesTheNextFreshCall(t *testing.T) {
	b := newBench(t)
	b.code(t, "import os, random, signal\nx = 1\nos.environ['Q'] = '1'\nos.chdir('/tmp')\nrandom.seed(1)\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)")
	resp := b.code(t, "import os, signal\n('x' in globals(), os.environ.get('Q'), os.getcwd(), signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)")
	real, err := filepath.EvalSymlinks(b.workspace)
	require.NoError(t, err)
	assert.Equal(t, "(False, None, '"+real+"', True)", value(resp))
	first := value(b.code(t, "import random\nrandom.random()"))
	assert.NotEqual(t, first, value(b.code(t, "import random\nrandom.random()")))
}

func TestNoNamesOfTheDriverAreGlobals(t *testing.T) {
	resp := newBench(t).code(t, "sorted(n for n in globals() if not n.startswith('__'))")
	assert.Equal(t, "['display', 'list_files', 'read_text', 'reads', 'write_text']", value(resp))
}

func TestFilesLeftOpenAreWritten(t *testing.T) {
	b := newBench(t)
	require.Equal(t, evaltool.StatusExited, b.code(t, "f = open('left.txt', 'w')\nn = f.write('whole')").Status)
	data, err := os.ReadFile(filepath.Join(b.workspace, "left.txt"))
	require.NoError(t, err)
	assert.Equal(t, "whole", string(data))
}

func TestModulesOfTheWorkspaceCanBeImported(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "mine.py"), []byte("answer = 42\n"), 0o600))
	assert.Equal(t, "42", value(b.code(t, "import mine\nmine.answer")))
}

func TestACancelledCallIsStopped(t *testing.T) {
	b := newBench(t)
	ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
	resp, err := b.Evaluate(ctx, evaltool.Request{Code: "open('begun', 'w').close()\nwhile True: pass", Sandbox: evaltool.SandboxContainer, Timeout: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, evaltool.StatusCancelled, resp.Status)
	assert.True(t, resp.Failed())
}

func (b *bench) makeFile(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, name), nil, 0o600))
}

func (b *bench) removeFile(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(b.workspace, name)))
}
