package python_test

import (
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

func (b *bench) restricted(t *testing.T, code string, kept bool) evaltool.Response {
	t.Helper()
	return b.eval(t, evaltool.Request{Code: code, Sandbox: evaltool.SandboxRestricted, Kept: kept})
}

func TestRestrictedCodeHasPythonsResults(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ code, value, stdout string }{
		{"total = 0\nfor value in range(5):\n    total += value\nprint(total)\ntotal", "10", "10\n"},
		{"statistics.mean([1,2,3])", "2", ""},
		{"math.floor(math.pi)", "3", ""},
		{"def fact(n):\n  if n < 2: return 1\n  return n * fact(n - 1)\nfact(10)", "3628800", ""},
		{"def f(n):\n  while True:\n    n += 1\n    if n > 5: return n\nf(1)", "6", ""},
		{"def f(a, b=2, *c, d=4, **e): return (a, b, c, d, e)\nf(1, 2, 3, x=5)", "(1, 2, (3,), 4, {'x': 5})", ""},
		{"def f():\n  try: return 1\n  finally: print('f')\nf()", "1", "f\n"},
		{"x = 1\ndef f(): x = 2\nf()\nx", "1", ""},
		{"x = 5\n[x for x in range(3)]\nx", "5", ""},
		{"{k: v for k, v in enumerate('ab') if k}", "{1: 'b'}", ""},
		{"sum(i * i for i in range(4))", "14", ""},
		{"f'{math.pi:.2f} {1!r:>3} {[2][0]}'", "'3.14   1 2'", ""},
		{"for i in range(5):\n  if i == 1: continue\n  if i == 3: break\n  print(i)\nelse: print('no')", "", "0\n2\n"},
		{"try:\n  1/0\nexcept (ValueError, ZeroDivisionError) as e:\n  print(e.args)\nelse:\n  print('no')", "", "('division by zero',)\n"},
		{"try:\n  try: raise KeyError('k')\n  finally: print('f')\nexcept KeyError: print('c')", "", "f\nc\n"},
		{"print('a', 'b', sep='-', end='!')", "", "a-b!"},
		{"a, (b, c) = 1, (2, 3)\na, b = b, a\n(a, b, c)", "(2, 1, 3)", ""},
		{"d = {'a': 1}\nd['a'] += 2\ndel d['a']\nd", "{}", ""},
		{"sorted({'b': 1, 'a': 2}.items(), key=lambda item: item[1])", "[('b', 1), ('a', 2)]", ""},
		{"(lambda a, *b, c=2, **d: (a, b, c, d))(1, 2, x=3)", "(1, (2,), 2, {'x': 3})", ""},
		{"f'{(lambda: 1)()}'", "'1'", ""},
		{"def adder(n): return lambda x: x + n\nadder(2)(3)", "5", ""},
		{"fs = [lambda: i for i in range(3)]\n[f() for f in fs]", "[2, 2, 2]", ""},
		{"k = 1\ndef g(): return k\ndef h():\n  k = 3\n  return g()\nk = 2\nh()", "2", ""},
		{"def f():\n  y = 1\n  return [y + z for z in range(2)]\nf()", "[1, 2]", ""},
		{"[(a, c) for (a, (b, c)) in [(1, (2, 3))] for _ in range(2) if a if c]", "[(1, 3), (1, 3)]", ""},
		{"{x: {y for y in range(x)} for x in range(3)}", "{0: set(), 1: {0}, 2: {0, 1}}", ""},
		{"x = 5\n[x for x in [x]]", "[5]", ""},
		{"x = 5\ndef f():\n  try: del x\n  except NameError: return 'kept'\n(f(), x)", "('kept', 5)", ""},
		{"def f():\n  y = 5\n  del y\n  try: return y\n  except NameError: return 'gone'\nf()", "'gone'", ""},
		{"(any(v > 1 for v in [1, 2]), all([]), list(map(lambda a, b: a * b, [1, 2], [3, 4])), repr('a'), chr(65))", "(True, True, [3, 8], \"'a'\", 'A')", ""},
		{"(isinstance(1, (str, int)), isinstance(None, type(None)), isinstance(1, type(None)))", "(True, True, False)", ""},
		{"(type(1), type(1) == int, type('a')(2), type(None) == type(None), type(print), type(lambda: 1), type(type(1)))",
			"(<class 'int'>, True, '2', True, <class 'builtin_function_or_method'>, <class 'function'>, <class 'type'>)", ""},
		{"[type(v).__name__ for v in (1, None, print, math, int)]", "['int', 'NoneType', 'builtin_function_or_method', 'module', 'type']", ""},
		{"try: 1/0\nexcept Exception as e: k = type(e).__name__\nk", "'ZeroDivisionError'", ""},
		{"','.join(str(abs(v)) for v in [-1, 2]).upper().split(',')", "['1', '2']", ""},
		{"write_text('d/z', '1')\nread_text('d/z') + str(list_files('d'))", `"1['d/z']"`, ""},
		{"x = set([1, 1])\nx.add(2)\n(len(x), tuple(zip(list('a'), [1.5])), round(2.6), max(1, 2), min([3]), bool(0), float('1'))",
			"(2, (('a', 1.5),), 3, 2, 3, False, 1.0)", ""},
		{"{**{'a': 1}, 'b': 2}", "{'a': 1, 'b': 2}", ""},
		{"x = y = [1]\ny += [2]\nx", "[1, 2]", ""},
		{"def fill(out): out += [1]\nx = []\nfill(x)\nx", "[1]", ""},
		{"x = y = {1}\ny |= {2}\n(x, x is y)", "({1, 2}, True)", ""},
		{"x = y = {'a': 1}\ny |= {'b': 2}\nx", "{'a': 1, 'b': 2}", ""},
		{"a = (1,)\na += (2, 3)\na", "(1, 2, 3)", ""},
		{"d = {'a': 1}\ndef k():\n  print('k')\n  return 'a'\nd[k()] += 1\nd", "{'a': 2}", "k\n"},
		{"def say(v):\n  print(v)\n  return v\nx = (say(i) for i in range(3))\nnext(x)", "0", "0\n"},
		{"def depth(n): return n if n == 900 else depth(n + 1)\ndepth(0)", "900", ""},
		{"a, *b = [1, 2, 3]\n(a, b)", "(1, [2, 3])", ""},
		{"def f():\n  try: return 1\n  finally: return 2\nf()", "2", ""},
		{"def f():\n  for i in range(3):\n    try: return i\n    finally: continue\n  return 'end'\nf()", "'end'", ""},
		{"def f():\n  try: 1/0\n  finally: return 3\nf()", "3", ""},
		{"try: 1/0\nexcept BaseException as e: k = str(e)\nk", "'division by zero'", ""},
		{"try: 1/0\nexcept (KeyError, BaseException): k = 1\nk", "1", ""},
		{"try: raise ValueError(1) from KeyError(2)\nexcept: k = 2\nk", "2", ""},
		{"[y := 1, y ** 2, y]", "[1, 1, 1]", ""},
		{"n = 0\ndef f():\n  global n\n  n += 1\nf()\nn", "1", ""},
		{"match [1, 2]:\n case [int(x), *_]: x += 5\nx", "6", ""},
		{"'+'.join('1' for _ in range(300)) and " + strings.Repeat("1+", 800) + "1", "801", ""},
		{"type(None) is type(None), type(type), isinstance(int, type), type(zip()) is zip, list[type(None)]", "(True, <class 'type'>, True, True, list[NoneType])", ""},
		{"def f():\n  try: nope\n  except NameError as e: return str(e)\nf()", "\"name 'nope' is not defined\"", ""},
		{"try: [].x\nexcept AttributeError as e: k = e.args\nk", "(\"'list' object has no attribute 'x'\",)", ""},
	} {
		resp := b.restricted(t, c.code, false)
		assert.Equal(t, evaltool.StatusExited, resp.Status, "%s\n%s", c.code, resp.Stderr)
		if c.value == "" {
			c.value = "<none>"
		}
		assert.Equal(t, c.value, value(resp), c.code)
		assert.Equal(t, c.stdout, resp.Stdout, c.code)
	}
}

// Random programs have the same outcome as in Python itself, or are refused. In integration, the image's Python
// runs more of them.
func TestGeneratedRestrictedCodeHasPythonsResults(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "driver.py")
	require.NoError(t, os.WriteFile(path, []byte(driver.Source()), 0o600))
	out, err := exec.Command("python3", "-W", "ignore", "testdata/differential.py", path, "150", "1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	if strings.Contains(string(out), "--- snippet") || strings.Contains(string(out), "refused: ") { // the snippets have only what the sandbox has
		assert.Fail(t, "another result than Python's", "%.6000s", out)
	}
}

func TestRestrictedErrorsAreReadableAndSaidOnce(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ code, stderr string }{
		{"1/0", "  File \"<code>\", line 1\n    1/0\nZeroDivisionError: division by zero\n"},
		{"x = 1\nif x:\n  y = nope", "  File \"<code>\", line 3\n    y = nope\nNameError: name 'nope' is not defined\n"},
		{"def f(a): return a\nf()", "  File \"<code>\", line 2\n    f()\nTypeError: f() missing 1 required positional argument: 'a'\n"},
		{"raise ValueError('bad')", "  File \"<code>\", line 1\n    raise ValueError('bad')\nValueError: bad\n"},
		{"assert 1 == 2, 'no'", "  File \"<code>\", line 1\n    assert 1 == 2, 'no'\nAssertionError: no\n"},
		{"x, y = 1, 2, 3", "  File \"<code>\", line 1\n    x, y = 1, 2, 3\nValueError: too many values to unpack (expected 2)\n"},
		{"x, y = [1]", "  File \"<code>\", line 1\n    x, y = [1]\nValueError: not enough values to unpack (expected 2, got 1)\n"},
		{"f = dict\nf(**{'a': 1}, a=2)", "  File \"<code>\", line 2\n    f(**{'a': 1}, a=2)\nTypeError: dict() got multiple values for keyword argument 'a'\n"},
		{"x = 1\nimport os", "  File \"<code>\", line 2\n    import os\nRestrictedError: import is not available in the sandbox restricted; use the sandbox container\n"},
		{"print(1)\nopen('x')", "  File \"<code>\", line 2\n    open('x')\nRestrictedError: open is not available in the sandbox restricted; use the sandbox container\n"},
	} {
		resp := b.restricted(t, c.code, true)
		assert.Equal(t, evaltool.StatusException, resp.Status)
		assert.Equal(t, c.stderr, resp.Stderr)
	}
	for _, code := range []string{"def def", "return 1", "break", "def f(): return f()\nf()", "1 is 1\nnope"} {
		resp := b.restricted(t, code, true)
		assert.Equal(t, evaltool.StatusException, resp.Status)
		assert.Equal(t, 1, strings.Count(resp.Stderr, "Error: "), resp.Stderr)
		assert.LessOrEqual(t, strings.Count(resp.Stderr, "Warning: "), 1, resp.Stderr)
	}
	resp := b.restricted(t, "def f(): return [][0]", true)
	require.Equal(t, evaltool.StatusExited, resp.Status)
	assert.Regexp(t, `File "<code \d+>", line 1\n    def f\(\): return \[\]\[0\]\nIndexError`, b.restricted(t, "\nf()", true).Stderr)
}

// A refusal ends the code, which could otherwise go on with another result than Python's.
func TestRestrictedCodeCanNotCatchARefusal(t *testing.T) {
	b := newBench(t)
	for _, code := range []string{
		"try: open('x')\nexcept: y = 1", "try: open('x')\nexcept BaseException: y = 1", "try: open('x')\nfinally: y = 1",
		"def f():\n  try: return open\n  finally: return 5\nf()", "for i in range(2):\n  try: (lambda: 0).__name__\n  finally: break",
		"def f():\n  try: [].sort.x if nope else vars\n  except NameError: return vars\n  finally: return 1\nf()",
		"list(map(lambda f: f.send, [(x for x in [])]))", "x = 0\nx = ValueError", "type(None) | int", "int | type(None)", "ValueError = 1", "def f(KeyError): pass",
		"try: pass\nexcept ValueError as KeyError: pass", "match 1:\n case math.pi: pass", "match 1:\n case int(real=x): pass", "raise BaseException('x')",
	} {
		resp := b.restricted(t, code, false)
		assert.Equal(t, evaltool.StatusException, resp.Status, code)
		assert.Contains(t, resp.Stderr, "RestrictedError: ", code)
		assert.Contains(t, resp.Stderr, "use the sandbox container", code)
	}
	resp := b.eval(t, evaltool.Request{Code: "1", Globals: map[string]string{"KeyError": "1"}, Sandbox: evaltool.SandboxRestricted})
	assert.Contains(t, resp.Stderr, "KeyError can't be given another meaning")
}

func TestRestrictedGlobalsAreDataOnly(t *testing.T) {
	b := newBench(t)
	resp := b.eval(t, evaltool.Request{
		Code: "def f(): return x\ny = f() + 1\nm = math\nk = type(None)\nz: int = 1", Globals: map[string]string{"x": "41"}, Sandbox: evaltool.SandboxRestricted,
	})
	assert.Equal(t, map[string]string{"x": "41", "y": "42", "z": "1"}, resp.Globals)
}

func TestRestrictedCodeTimesOutAndKeepsItsNames(t *testing.T) {
	b := newBench(t)
	b.restricted(t, "z = 5", true)
	for _, code := range []string{"while True: pass", "while True:\n  try: pass\n  except: pass", "while True:\n  try: z += 0\n  except BaseException: z = 6"} {
		resp := b.eval(t, evaltool.Request{Code: code, Sandbox: evaltool.SandboxRestricted, Kept: true, Timeout: time.Second})
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
		assert.Equal(t, "5", value(b.restricted(t, "z", true)))
	}
}

// escapes are tricks against Python sandboxes.
var escapes = []struct {
	group string
	codes []string
}{
	{"names", []string{
		"import os", "from os import system", "import importlib as i", "__import__('os')", "eval('1')", "exec('1')", "compile('1','','eval')",
		"open('/etc/passwd')", "globals()", "locals()", "vars()", "dir()", "getattr(1, 'real')", "setattr(1, 'a', 1)", "delattr(1, 'a')",
		"object()", "super()", "memoryview(b'x')", "breakpoint()", "input()", "help()", "exit()", "__builtins__", "__name__",
		"__loader__", "__spec__", "classmethod(len)", "property(len)", "print.__self__", "Exception('x').args", "BaseException",
	}},
	{"dunder attributes", []string{
		"().__class__", "''.__class__.__mro__", "().__class__.__base__.__subclasses__()", "[].__class__.__bases__[0]", "{}.__class__",
		"(1).__class__", "math.__dict__", "math.__loader__", "math.__spec__", "statistics.__builtins__", "len.__self__", "len.__module__",
		"str.__mro__", "str.mro()", "int.__subclasses__()", "int.__base__", "print.__globals__", "read_text.__globals__", "read_text.__closure__",
		"write_text.__code__", "read_text.__init__.__globals__", "def f(): pass\nf.__code__", "def f(): pass\nf.__globals__",
		"try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame", "try: 1/0\nexcept Exception as e: x = e.__class__",
		"''.__getattribute__('upper')", "().__reduce_ex__(2)", "().__init_subclass__", "[].__len__()", "x = ().__class__ = 1", "(1).__doc__",
	}},
	{"library", []string{
		"read_text.func_globals", "statistics.sys", "statistics.random", "statistics.math", "statistics.random._os.system('id')", "statistics.Fraction",
		"statistics.NormalDist", "statistics.Counter", "statistics.groupby", "statistics.itemgetter", "statistics.sys.modules", "statistics.namedtuple",
		"math.members", "math.name", "statistics.members", "math.members['pi']", "def f(): pass\nf.inner", "def f(): pass\nf.inner.symtable",
		"def f(): pass\nf.body", "def f(): pass\nf.signature", "def f(): pass\nf.name", "print.name", "math.pi = 3", "statistics.mean = 1", "del math.pi",
		"def f(): pass\nf.body = 1", "try: 1/0\nexcept Exception as e: e.with_traceback(None)", "try: nope\nexcept NameError as e: e.name",
		"try: ''.nope\nexcept AttributeError as e: e.obj", "try: read_text('no')\nexcept OSError as e: e.filename", "range(3).__iter__().x",
		"zip([1]).x", "{}.keys().mapping", "list[int].__origin__", "(int | str).x", "for math.x in [1]: pass", "[0 for math.x in [1]]",
		"with read_text('z'): pass", "(1).real.imag.x", "b''.x", "x = [1]\nx.y = 2", "x = {}\nx.y += 2",
	}},
	{"types and functions as values", []string{
		"type('A', (), {})", "type(int)('A', (), {})", "type(type(1))('A', (), {})", "type(None)()", "type(print)(1)", "type(lambda: 1)(1, 2, 3)", "type(math)('os')",
		"try: 1/0\nexcept Exception as e: type(e)('x')", "type(1).__class__", "type(1).mro()", "type(1).__subclasses__()", "type(None).kind", "type(print).__class__",
		"type(math).members", "type(read_text).__code__", "type(None).__instancecheck__(1)", "type(print).__name__ = 'x'", "int.__name__ = 'x'", "print.__name__",
		"type(1).__name__.__class__", "type('').format('{0.__class__}', 1)", "type(None).__mro__", "type.__self__", "type.__globals__", "type.__call__(1)",
		"(lambda: 1).__code__", "(lambda: 1).__globals__", "(lambda: 1).scope", "(lambda: 1).inner.symtable", "(lambda: 1).signature", "(lambda: 1).body",
		"(lambda x=math.__dict__: x)()", "(lambda *a: a.__class__)()", "(lambda **k: k.__class__)()", "(lambda self: self.__class__)(1)",
		"list(map(lambda f: f.__globals__, [read_text]))", "list(map(type, [1], [()], [{}]))", "sorted([1], key=lambda v: v.__class__)", "any(v.__class__ for v in [1])",
		"[v.__class__ for v in [1]]", "{v: v.__mro__ for v in [int]}", "[v for v in [1] if v.__class__]", "[0 for v.x in [1]]", "map(str, [1]).__reduce__()",
		"map.__self__", "any.__self__", "isinstance.__module__", "isinstance(1, 1)", "isinstance(1, ('int',))", "repr(math).__class__", "chr.__call__(65)",
		"list(map(''.format, [1]))", "list(map(getattr, [1], ['real']))", "[f() for f in [lambda: nope]]", "def f(): return (lambda: f.scope)()\nf()",
	}},
	{"formats", []string{
		"'{0.__class__}'.format(1)", "'{a.b}'.format_map({})", "str.format('{0.__class__}', 1)", "str.format_map('{a}', {})", "f'{().__class__}'",
		"f'{1:{().__class__}}'", "f'{1!r:{math.__dict__}}'", "f\"{'x'.__class__!s}\"", "f\"{1:{'}{__fstring__.__class__'}}\"", "f\"{[1]:{'!r'}}\"",
		"'{}'.format", "map(str.format, ['{0.__class__}'])", "sorted(['{0.__class__}'], key=str.format)",
		"f\"{dict.mro()[1]!s:{'{__fstring__.__getattribute__.s}'}}\"", "'{0.gi_frame}'.format(x for x in [1])", "f'{(lambda: 1).__code__}'", "max(['a'], key=''.format)",
	}},
	{"statements", []string{
		"(lambda: (yield))()", "[x async for x in [1]]", "class A: pass", "async def f(): pass", "await x", "def f(): yield 1\nf()", "def f(): return (yield)", "def f():\n nonlocal x",
		"with open('x') as f: pass", "print('x', file=1)", "async with x: pass", "type X = int", "def f[T](): pass", "(x.__class__ := 1)", "def f():\n global __builtins__",
		"match [1]:\n case list(__class__=x): pass", "match {}:\n case {**__builtins__}: pass", "@(lambda f: f.__globals__)\ndef f(): pass", "try: pass\nexcept* ValueError: pass",
		"try:\n 1/0\nexcept print: pass", "try:\n 1/0\nexcept ().__class__: pass", "raise SystemExit", "raise KeyboardInterrupt", "raise len", "raise 'x'",
	}},
	{"files", []string{
		"read_text('../secret')", "read_text('/etc/../../secret')", "read_text('out')", "read_text('way/secret')", "read_text(1)", "write_text('../x', '1')",
		"write_text('a/../../x', '1')", "list_files('..')", "list_files('way')", "read_text('fifo')", "write_text('x', b'1')", "write_text('x', '1', 'w')",
		"read_text('\\x00')", "read_text('/dev/null')", "read_text('a' * 81)", "write_text('/', 'x')", "write_text('é', 'x')",
	}},
}

func TestEscapesFromTheRestrictedSandboxAreRefused(t *testing.T) {
	b := newBench(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("WISBOX-SECRET"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(b.workspace, "out")))
	require.NoError(t, os.Symlink(outside, filepath.Join(b.workspace, "way")))
	b.code(t, "import os; os.mkfifo('fifo')")
	b.restricted(t, "q = 1", true)
	for _, group := range escapes {
		t.Run(group.group, func(t *testing.T) {
			for _, code := range group.codes {
				resp := b.restricted(t, code, true)
				assert.Equal(t, evaltool.StatusException, resp.Status, "%s gave %v", code, resp)
				assert.NotContains(t, fmt.Sprint(resp), "WISBOX-SECRET", code)
				assert.Empty(t, resp.Writes, code)
			}
		})
	}
	assert.Equal(t, "1", value(b.restricted(t, "q", true)), "the interpreter is the same")
}
