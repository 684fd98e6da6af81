package javascript_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/javascript"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*javascript.Engine
	workspace string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		hosttest.Lacks(t, "node is missing; see: make setup")
	}
	dir := t.TempDir()
	box, err := sandboxtest.NewHost().Create(context.Background(), sandbox.Spec{ID: "javascript-test", Image: "host", Workspace: dir})
	require.NoError(t, err)
	e := javascript.New(&javascript.Options{Runner: func(context.Context) (sandbox.Runner, error) { return box, nil }})
	t.Cleanup(func() {
		assert.NoError(t, e.Close())
		assert.NoError(t, box.Close(context.Background()))
	})
	return &bench{e, dir}
}

func (b *bench) eval(ctx context.Context, t *testing.T, req evaltool.Request) evaltool.Response {
	t.Helper()
	if req.Timeout == 0 {
		req.Timeout = time.Minute
	}
	resp, err := b.Evaluate(ctx, req)
	require.NoError(t, err)
	return resp
}

func (b *bench) code(t *testing.T, code string) evaltool.Response {
	t.Helper()
	return b.eval(t.Context(), t, evaltool.Request{Code: code})
}

func value(r evaltool.Response) string {
	if r.Value == nil {
		return ""
	}
	return *r.Value
}

func TestNamesLiveOnAndTheLastExpressionIsTheValue(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "m.mjs"), []byte("export default 7; export const a = 1, b = 2\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "c.js"), []byte("exports.c = 3\n"), 0o600))
	for _, c := range []struct{ code, value, stdout string }{
		{"const x = 1; let y = 2; class A {}; function f() { return x + y }", "", ""},
		{"f()", "3", ""},
		{"const x = 40", "", ""},
		{"f()", "42", ""},
		{"_ + 1", "43", ""},
		{"class A { z = 1 }; new A()", "A { z: 1 }", ""},
		{"const z = await Promise.resolve(5); z", "5", ""},
		{"for (const i of [1, 2]) await null; z", "5", ""},
		{"new Promise(done => setTimeout(done, 1, 'late'))", "'late'", ""},
		{"undefined", "", ""},
		{"null", "null", ""},
		{"'it\\'s'", `"it's"`, ""},
		{"1n", "1n", ""},
		{"({a: {b: {c: {d: 1}}}})", "{\n  a: { b: { c: { d: 1 } } }\n}", ""},
		{"console.log('a', {b: 1}); process.stdout.write('é'); console.error('no')", "", "a { b: 1 }\né"},
		{"1 // a comment", "1", ""},
		{"", "", ""},
		{"require('./c').c", "3", ""},
		{"import seven, { a as one, b } from './m.mjs'\nimport * as fs from 'node:fs'\n[seven, one, b, typeof fs.readFileSync]", "[ 7, 1, 2, 'function' ]", ""},
		{"import path from 'path'; path.join('a', 'b')", "'a/b'", ""},
		{"(await import('./m.mjs')).default", "7", ""},
		{"'import(1)' + `import x from \"y\"` // import z from 'q'\n", "'import(1)import x from \"y\"'", ""},
		{"{a: 1}", "{ a: 1 }", ""},
		{"{a: 1, b: 2}", "{ a: 1, b: 2 }", ""},
		{" // c\n/* d */ {a: 1} // e", "{ a: 1 }", ""},
		{"{a: await z, ['b']: {c: [1]}}", "{ a: 5, b: { c: [ 1 ] } }", ""},
		{"{...{q: 1}}.q", "1", ""},
		{"{}", "{}", ""},
		{"{a: 1};", "1", ""},
		{"{ let w = 7; w }", "7", ""},
		{"{ z; z }", "5", ""},
		{"{ f() }", "42", ""},
		{"{ if (z) z }", "5", ""},
		{"{a: 1}) ; (2", "", "SyntaxError"},
		{"({get [Symbol.toStringTag]() { throw 1 }})", "[a value that can't be shown]", ""},
		{"'x'.repeat(1e6).length", "1000000", ""},
	} {
		resp := b.code(t, c.code)
		if c.stdout == "SyntaxError" {
			assert.Contains(t, resp.Stderr, c.stdout)
			continue
		}
		require.Equal(t, evaltool.StatusExited, resp.Status, c.code+resp.Stderr)
		assert.Equal(t, c.value, value(resp), c.code)
		assert.Equal(t, c.stdout, resp.Stdout, c.code)
	}
	assert.LessOrEqual(t, len(value(b.code(t, "'x'.repeat(1e5)"))), evaltool.StreamChars)
	assert.Equal(t, "undefined undefined 1", strings.Trim(value(b.code(t, "`${typeof module} ${typeof __filename} ${globalThis.__one = 1}`")), "'"))
}

func TestAnErrorHasACleanStack(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ code, name, value, stderr string }{
		{"function f() {\n  throw new TypeError('bad')\n}\nf()", "TypeError", "bad", "TypeError: bad\n    at f (cell-1:2:9)\n    at cell-1:4:1\n"},
		{"let a =\n  b c", "SyntaxError", "Unexpected identifier", "cell-2:2\n  b c\n    ^\nSyntaxError: Unexpected identifier"},
		{"(", "SyntaxError", "Unexpected end of input", "cell-3:1\n(\n ^\nSyntaxError: Unexpected end of input\n"},
		{"throw 5", "Error", "5", "Uncaught 5\n"},
		{"await null; none", "ReferenceError", "none is not defined", "ReferenceError: none is not defined\n    at cell-5:1:13\n"},
		{"Promise.reject(new Error('x'))", "Error", "x", "Error: x\n    at cell-6:1:16\n"},
		{"JSON.parse('{')", "SyntaxError", "", "    at JSON.parse (<anonymous>)\n    at cell-7:1:6\n"},
		{"require('./none')", "Error", "Cannot find module './none'", "Require stack"},
		{"throw new Error('why', {cause: new Error('because')})", "Error", "why", "[cause]: Error: because"},
	} {
		feed := evaltool.NewFeed(t.Context(), func(evaltool.Part) {})
		resp := b.eval(t.Context(), t, evaltool.Request{Code: c.code, Feed: feed})
		feed.Close(t.Context())
		assert.Equal(t, evaltool.StatusException, resp.Status, c.code)
		assert.Contains(t, resp.Stderr, c.stderr, c.code)
		for _, ours := range []string{"[stdin]", "inspector", "node:internal"} {
			assert.NotContains(t, resp.Stderr, ours, c.code)
		}
		require.NotNil(t, resp.Raised, c.code)
		assert.Equal(t, c.name, resp.Raised.Name, c.code)
		assert.Contains(t, resp.Raised.Value, c.value, c.code)
	}
	// Errors outside of the evaluation's own code don't end it.
	resp := b.code(t, "setTimeout(() => { throw new Error('stray') }, 1); Promise.reject(new Error('lost')); await new Promise(r => setTimeout(r, 50)); 1")
	assert.Equal(t, "1", value(resp))
	assert.Contains(t, resp.Stderr, "Uncaught Error: stray")
	assert.Contains(t, resp.Stderr, "Uncaught Error: lost")
}

func TestAnErrorAsAValueHasACleanStack(t *testing.T) {
	b := newBench(t)
	const own = "Error: x\n    at f (cell-1:1:17)\n    at cell-1:2:1"
	resp := b.code(t, "const f = () => new Error('x')\nf()")
	assert.Equal(t, own, value(resp))
	for _, c := range []struct{ code, text string }{
		{"const e = new Error('x'); [e, {e}]", "[\n  Error: x\n      at cell-2:1:11,\n  {\n    e: Error: x\n        at cell-2:1:11\n  }\n]"},
		{"try { null.x } catch (e) { e.stack.split('\\n').length }", "2"},
		{"new AggregateError([new TypeError('a', {cause: new RangeError('b')})], 'c')", ""},
		{"await null; new Error('late')", "Error: late\n    at cell-5:1:13"},
		{"await new Promise(done => setTimeout(() => done(new Error('timer')), 1))", ""},
		{"try { setTimeout(1) } catch (e) { e }", ""},
		{"class Own extends Error { name = 'Own' }; new Own('x')", "Own: x\n    at cell-8:1:43"},
		{"Error.prepareStackTrace(null, [])", "'<error>'"},
	} {
		resp := b.code(t, c.code)
		require.Equal(t, evaltool.StatusExited, resp.Status, c.code+resp.Stderr)
		if c.text != "" {
			assert.Equal(t, c.text, value(resp), c.code)
		}
		assert.NotContains(t, value(resp), "[stdin]", c.code)
		assert.NotContains(t, value(resp), "node:inspector", c.code)
	}
	printed := b.code(t, "console.log(new Error('x')); console.log(new Error('y').stack)").Stdout
	assert.Equal(t, "Error: x\n    at cell-10:1:13\nError: y\n    at cell-10:1:42\n", printed)
}

// Imports are found from the directory of the context, like those of require.
func TestImportsAreThoseOfTheDirectory(t *testing.T) {
	b := newBench(t)
	for name, text := range map[string]string{
		"sub/node_modules/both/package.json": `{"exports": {"import": "./m.mjs", "require": "./c.cjs"}}`,
		"sub/node_modules/both/m.mjs":        "export default 'module'",
		"sub/node_modules/both/c.cjs":        "module.exports = 'commonjs'",
		"sub/node_modules/plain/index.js":    "exports.a = 1",
		"sub/node_modules/@s/p/package.json": `{"type": "module", "exports": {"./x": "./x.js"}}`,
		"sub/node_modules/@s/p/x.js":         "export const x = 2",
		"other/node_modules/plain/index.js":  "exports.a = 'other'",
		"sub/package.json":                   `{"type": "module", "imports": {"#own": "./own.js"}, "name": "me", "exports": "./own.js"}`,
		"sub/own.js":                         "export const own = 3; let n = 0; export const next = () => ++n",
		"sub/a.json":                         `{"json": 4}`,
		"sub/with space.mjs":                 "export default 'space'",
	} {
		path := filepath.Join(b.workspace, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, c := range []struct{ code, value string }{
		{"import both from 'both'; [both, require('both')]", "[ 'module', 'commonjs' ]"},
		{"import { a } from 'plain'; import { x } from '@s/p/x'; [a, x]", "[ 1, 2 ]"},
		{"(await import('plain')).a", "1"},
		{"import { own } from '#own'; import { own as mine } from 'me'; import { own as far } from './own.js'; [own, mine, far]", "[ 3, 3, 3 ]"},
		{"import { next } from './own.js'; import { next as again } from './own.js?fresh'; [next(), next(), again()]", "[ 1, 2, 1 ]"},
		{"import data from './a.json' with { type: 'json' }; data", "{ json: 4 }"},
		{"import * as all from \"./a.json\" with {\"type\": \"json\"}\nall.default.json", "4"},
		{"(await import('./a.json', { with: { type: 'json' } })).default.json", "4"},
		{"import './a.json' with { type: 'json' }\n1", "1"},
		{"import space from './with space.mjs'; space", "'space'"},
		{"const { pathToFileURL } = require('url'); (await import(pathToFileURL(process.cwd() + '/own.js'))).own", "3"},
		{"process.chdir('../other'); const { a: o } = await import('plain'); [o, require('plain').a]", "[ 'other', 'other' ]"},
		{"import('none').catch(e => e.code)", "'ERR_MODULE_NOT_FOUND'"},
	} {
		resp := b.eval(t.Context(), t, evaltool.Request{Code: c.code, Context: "sub", Dir: "sub"})
		require.Equal(t, evaltool.StatusExited, resp.Status, c.code+resp.Stderr)
		assert.Equal(t, c.value, value(resp), c.code)
	}
}

// An import is one wherever it stands, and a word in a text, a regular expression or a method's name is none.
func TestImportsAreToldFromOtherText(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "m.mjs"), []byte("export default 7; export const a = 1\n"), 0o600))
	for _, c := range []struct{ code, value string }{
		{"`${(await import('./m.mjs')).default} ${`${(await import('./m.mjs')).a}`}`", "'7 1'"},
		{"`${{a: `}`}.a} import('x') \\${import('x')}`", "\"} import('x') ${import('x')}\""},
		{"const quote = /'/; (await import('./m.mjs')).a + quote.source", `"1'"`},
		{"'a\"b'.replace(/[\"'/]/g, '-') + (await import(\"./m.mjs\")).a", "'a-b1'"},
		{"(() => { return /`/ })().source + (await import('./m.mjs')).a", "'`1'"},
		{"const half = 4 / 2; (await import('./m.mjs')).a / half", "0.5"},
		{"({ import(x) { return x } }).import(3)", "3"},
		{"class I { import(a, b = (1)) { return a } static async import() { return 2 } }; [new I().import(4), await I.import()]", "[ 4, 2 ]"},
		{"if (true) (await import('./m.mjs')).a", "1"},
		{"try { (await import('./m.mjs')), none } catch (e) { e.stack.split('\\n')[1] }", "'    at cell-10:1:34'"},
	} {
		resp := b.code(t, c.code)
		require.Equal(t, evaltool.StatusExited, resp.Status, c.code+resp.Stderr)
		assert.Equal(t, c.value, value(resp), c.code)
	}
}

func TestContextsHaveDirectoriesAndVariables(t *testing.T) {
	b := newBench(t)
	req := evaltool.Request{Code: "process.cwd() + process.env.A", Context: "c", Dir: "/usr", ContextEnv: map[string]string{"A": "a"}}
	assert.Equal(t, "'/usra'", value(b.eval(t.Context(), t, req)))
	req.Code, req.Env = "process.env.A + process.env.B", map[string]string{"A": "x", "B": "y"}
	assert.Equal(t, "'xy'", value(b.eval(t.Context(), t, req)))
	req.Env = nil
	assert.Equal(t, "'aundefined'", value(b.eval(t.Context(), t, req)))
	assert.Equal(t, "'"+b.workspace+"'", value(b.eval(t.Context(), t, evaltool.Request{Code: "process.cwd()", Context: "d", Dir: "/none"})))
}

// Displays come while the code runs, in order with its output.
func TestPartsComeInTheirOrder(t *testing.T) {
	b := newBench(t)
	var got []string
	feed := evaltool.NewFeed(t.Context(), func(p evaltool.Part) {
		switch {
		case p.Count > 0:
			got = append(got, fmt.Sprint("count ", p.Count))
		case p.Stdout != "":
			got = append(got, p.Stdout)
		case p.Shown != nil:
			got = append(got, fmt.Sprint(p.Shown.Main, " ", p.Shown.Text, " ", string(p.Shown.JSON), len(p.Shown.Display)))
		}
	})
	resp := b.eval(t.Context(), t, evaltool.Request{Feed: feed, Code: `console.log('one')
display({'text/html': '<b>', 'image/png': new Uint8Array([1, 2]), 'text/plain': 'plain'}, {raw: true})
console.log('two')
class Chart { [Symbol.for('Jupyter.display')]() { return {'image/svg+xml': '<svg/>'} } }
display(new Chart())
;[1, {a: 'é'}]`})
	feed.Close(t.Context())
	require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
	assert.Equal(t, []string{"count 1", "one\n", "false plain 2", "two\n", "false Chart {} 1", `true [ 1, { a: 'é' } ] [1,{"a":"é"}]0`}, got)
	assert.Equal(t, []evaltool.Display{{MIME: "text/html", Data: "<b>"}, {MIME: "image/png", Data: "AQI="}, {MIME: "image/svg+xml", Data: "<svg/>"}}, resp.Display)
	require.Len(t, resp.Results, 3)
	resp = b.code(t, "for (let i = 0; i < 40; i++) display({'text/html': 'x'.repeat(i < 9 ? 1 << 20 : 1)}, {raw: true})")
	assert.Len(t, resp.Results, 32)
	assert.Len(t, resp.Display, 8, "8 MiB")
	assert.Contains(t, strings.Join(resp.Notes, " "), "32 displays were too large, too many")
}

// The driver drops displays that the host would refuse. The answer and the names stay.
func TestDisplaysThatAreNoneAreLeftOut(t *testing.T) {
	b := newBench(t)
	b.code(t, "const z = 5")
	for _, code := range []string{
		"display({html: '<b>'}, {raw: true})", "display({'text/html; charset=utf-8': '<b>'}, {raw: true})", "display({'text/html\\n': 'x'}, {raw: true})",
		"display({'text/html': '字'.repeat(2e6)}, {raw: true})", "display({'text/html': '\x01'.repeat(1e6)}, {raw: true})",
		"display({'image/png': new Uint8Array(16 << 20)}, {raw: true})", "display({'application/json': ['x'.repeat(8 << 20)]}, {raw: true})",
		"display({'application/json': {get x() { throw 1 }}}, {raw: true})",
	} {
		for _, feed := range []*evaltool.Feed{nil, evaltool.NewFeed(t.Context(), func(evaltool.Part) {})} {
			resp := b.eval(t.Context(), t, evaltool.Request{Code: code, Feed: feed})
			require.Equal(t, evaltool.StatusExited, resp.Status, code)
			assert.Empty(t, resp.Display, code)
			assert.Len(t, resp.Results, 1, code)
			assert.Contains(t, strings.Join(resp.Notes, " "), "1 displays were", code)
			if feed != nil {
				feed.Close(t.Context())
			}
		}
	}
	resp := b.code(t, "display({'text/html': '字'.repeat(1e6)}, {raw: true}); for (let i = 0; i < 9; i++) display({'text/html': '\x01'.repeat(6e5)}, {raw: true}); z")
	assert.Len(t, resp.Display, 2, "8 MiB of the message")
	assert.Equal(t, "5", value(resp))
}

// The JSON of a value is made only for a feed, and only up to its limit.
func TestTheJSONOfAValueIsBounded(t *testing.T) {
	b := newBench(t)
	b.code(t, "let n = 0; const counted = length => Array.from({length}, () => ({get ['a'.repeat(100)]() { n++; return 1 }}))")
	b.code(t, "n = 0; const large = counted(1e5); display(large)")
	before := value(b.code(t, "n"))
	var got []int
	feed := evaltool.NewFeed(t.Context(), func(p evaltool.Part) {
		if p.Shown != nil {
			got = append(got, len(p.Shown.JSON))
		}
	})
	b.eval(t.Context(), t, evaltool.Request{Code: "display(large); display(Array(1e5).fill(12345678)); display(['x'.repeat(2 << 20)])", Feed: feed})
	feed.Close(t.Context())
	assert.Equal(t, []int{0, 900_001, 0}, got)
	assert.Equal(t, "0", before)
	assert.Equal(t, "true", value(b.code(t, "n > 1e4 && n < 2e4")))
}

// An error while showing the value counts as an exception of the evaluation.
func TestAValueThatCanNotBeShownIsAnException(t *testing.T) {
	b := newBench(t)
	b.code(t, "const z = 5")
	for _, code := range []string{
		"({[Symbol.for('Jupyter.display')]: () => ({get 'text/plain'() { throw new Error('no') }})})",
		"({[Symbol.for('Jupyter.display')]: () => new Proxy({}, {ownKeys() { throw new Error('no') }})})",
		"Object.defineProperty(Promise.resolve(1), 'constructor', {get() { throw new Error('no') }})",
		"await null; Object.defineProperty(Promise.resolve(1), 'constructor', {get() { throw new Error('no') }})",
		"const { every } = Array.prototype; Array.prototype.every = null",
	} {
		resp := b.code(t, code)
		assert.Equal(t, evaltool.StatusException, resp.Status, code)
		assert.Equal(t, "5", value(b.code(t, "if (typeof every !== 'undefined') Array.prototype.every = every; z")), code)
	}
	b.eval(t.Context(), t, evaltool.Request{Code: "const env = process.env; process.env = new Proxy(env, {set() { throw 1 }, deleteProperty() { throw 2 }})", Env: map[string]string{"A": "a"}})
	assert.Equal(t, "5", value(b.code(t, "process.env = env; z")))
}

// An interrupt that comes while the answer is being made or sent waits for it.
func TestAnInterruptOfALargeAnswerKeepsTheNames(t *testing.T) {
	b := newBench(t)
	b.WaitLong()
	b.code(t, "const z = 5")
	for range 3 {
		ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
		resp := b.eval(ctx, t, evaltool.Request{Code: "for (let i = 0; i < 8; i++) display({'text/html': 'x'.repeat((1 << 20) - 1)}, {raw: true}); require('fs').writeFileSync('begun', ''); z"})
		assert.False(t, resp.Ended)
		assert.NotContains(t, strings.Join(resp.Notes, " "), "lost")
		assert.Equal(t, "5", value(b.code(t, "require('fs').rmSync('begun'); z")))
	}
}

// An answer that is interrupted while it is being made is made again.
func TestAnAnswerThatTakesLongIsInterruptedButNotLost(t *testing.T) {
	b := newBench(t)
	b.WaitLong()
	b.code(t, "const z = 5")
	ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
	resp := b.eval(ctx, t, evaltool.Request{Code: `const { every } = Array.prototype
let slow = true
Array.prototype.every = function (...args) {
  if (slow) {
    slow = false
    require('fs').writeFileSync('begun', '')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300)
  }
  return every.apply(this, args)
}
undefined`})
	assert.Equal(t, evaltool.StatusCancelled, resp.Status)
	assert.Contains(t, strings.Join(resp.Notes, " "), "still there")
	assert.Equal(t, "5", value(b.code(t, "Array.prototype.every = every; z")))
}

func TestTimersThatAreOverAreForgotten(t *testing.T) {
	b := newBench(t)
	resp := b.code(t, `require('v8').setFlagsFromString('--expose-gc')
const gc = require('vm').runInNewContext('gc'), refs = []
for (let i = 0; i < 10; i++) {
  await Promise.all(Array.from({length: 100}, () => new Promise(done => { refs.push(new WeakRef(setTimeout(done, 1))) })))
}
await new Promise(done => setTimeout(done, 1))
gc()
refs.filter(ref => ref.deref()).length < 500`)
	assert.Equal(t, "true", value(resp), resp.Stderr)
}

func TestAnInterruptKeepsTheNames(t *testing.T) {
	b := newBench(t)
	b.WaitLong()
	b.code(t, "const z = 5")
	forever := "await new Promise(() => {})"
	for _, code := range []string{
		"for (;;);", "await null; for (;;);", "try { for (;;); } finally { for (;;); }", forever,
		"setTimeout(() => { for (;;); }); " + forever, "setInterval(() => { for (;;); }); " + forever,
		"setImmediate(() => { for (;;); }); " + forever, "process.nextTick(() => { for (;;); }); " + forever,
		"(async () => { for (;;) await null })(); " + forever, "require('child_process').execSync('sleep 60')",
		"for (;;) await new Promise(done => setTimeout(done, 1))", "for (;;) console.log('x')",
		"({get [Symbol.toStringTag]() { for (;;); }})", "process.on('SIGINT', () => {}); " + forever,
		"process.removeAllListeners('SIGINT'); " + forever, "process.removeAllListeners(); " + forever,
		"process.once('SIGINT', () => process.exit(1)); " + forever, "process.on('SIGINT', () => {}).removeAllListeners('SIGINT'); " + forever,
	} {
		ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
		feed := evaltool.NewFeed(ctx, func(evaltool.Part) {})
		resp := b.eval(ctx, t, evaltool.Request{Code: "display('seen'); require('fs').writeFileSync('begun', ''); " + code, Feed: feed})
		feed.Close(ctx)
		assert.Equal(t, evaltool.StatusCancelled, resp.Status, code)
		assert.Contains(t, strings.Join(resp.Notes, " "), "still there", code)
		require.Len(t, resp.Results, 1, code)
		assert.Equal(t, "5", value(b.code(t, "require('fs').rmSync('begun'); z")), code)
	}
	resp := b.eval(t.Context(), t, evaltool.Request{Code: forever, Timeout: 200 * time.Millisecond})
	assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
	assert.True(t, strings.HasSuffix(resp.Stderr, evaltool.TimeoutText))
	assert.Equal(t, "5", value(b.code(t, "z")))
}

// The code of an interrupted evaluation that waited for a timer doesn't continue.
func TestInterruptedCodeThatSleepsGoesOnNoMore(t *testing.T) {
	b := newBench(t)
	b.WaitLong()
	for _, sleep := range []string{
		"await new Promise(done => setTimeout(done, 5))", "await new Promise(setImmediate)", "await require('timers/promises').setTimeout(5)",
		"await require('timers/promises').setImmediate()", "await require('timers/promises').scheduler.wait(5)", "await require('util').promisify(setTimeout)(5)",
		"await new Promise(done => require('timers').setTimeout(done, 5))", "await (await import('timers/promises')).setTimeout(5)",
	} {
		ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
		b.eval(ctx, t, evaltool.Request{Code: "var n = 0; for (;;) { if (++n === 3) require('fs').writeFileSync('begun', ''); " + sleep + " }"})
		resp := b.code(t, "require('fs').rmSync('begun'); const before = n; await new Promise(done => setTimeout(done, 50)); n === before")
		assert.Equal(t, "true", value(resp), sleep)
	}
	resp := b.code(t, "const { setTimeout: sleep, setImmediate: soon } = require('timers/promises'); [await sleep(1, 'a'), await soon('b'), await sleep(1, 'c', {ref: true})]")
	assert.Equal(t, "[ 'a', 'b', 'c' ]", value(resp), resp.Stderr)
}

func TestHostileCodeLosesItsInterpreterAtMost(t *testing.T) {
	b := newBench(t)
	const ended, late, exited, failed = "signaled", evaltool.StatusTimedOut, evaltool.StatusExited, evaltool.StatusException
	for _, c := range []struct {
		status, code string
	}{
		{exited, "process.exit(3)"}, {ended, "process.kill(process.pid, 'SIGKILL')"}, {ended, "process.abort()"}, {late, "require('fs').closeSync(3); await new Promise(() => {})"}, {ended, "require('fs').closeSync(4)"},
		{ended, "require('fs').writeSync(4, Buffer.from([0xff, 0xff, 0xff, 0xff, 1]))"}, {exited, "require('fs').writeSync(4, Buffer.from('\\0\\0\\0\\x02{}'))"},
		{exited, "JSON.stringify = () => '{'; Object.prototype.toJSON = () => 1"}, {failed, "Promise.prototype.then = null; Array.prototype.push = null; Object.entries = null"},
		{exited, "delete globalThis.console; globalThis.require = null"}, {exited, "process.removeAllListeners(); process.stdout.destroy()"}, {failed, "Error.prepareStackTrace = () => { throw 1 }; null.x"},
		{exited, "Object.defineProperty(Object.prototype, 'id', {get() { throw 1 }, set() { throw 2 }})"}, {failed, "throw new Proxy(new Error('x'), {get() { throw 1 }})"},
		{failed, "throw Object.assign(new Error('x'), {name: {toString() { throw 1 }}})"}, {exited, "new Proxy({}, {get() { throw 1 }, ownKeys() { throw 2 }, getPrototypeOf() { throw 3 }})"},
		{late, "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)"}, {exited, "new (require('inspector').Session)().connect()"},
	} {
		timeout := time.Minute
		if c.status == late {
			timeout = 200 * time.Millisecond
		}
		resp := b.eval(t.Context(), t, evaltool.Request{Code: c.code, Timeout: timeout})
		assert.Equal(t, c.status, resp.Status, c.code+resp.Stderr)
		if resp.Ended {
			assert.Contains(t, strings.Join(resp.Notes, " "), "lost", c.code)
		}
		if !resp.Ended && c.status != late && !strings.Contains(c.code, "push = null") { // it is needed to show anything
			assert.Equal(t, "1", value(b.code(t, "1")), c.code)
		}
		require.NoError(t, b.Reset(t.Context(), ""))
		assert.Equal(t, "1", value(b.code(t, "1")), c.code)
	}
}

func TestAnExitEndsTheInterpreterAtOnce(t *testing.T) {
	b := newBench(t)
	resp := b.code(t, "const x = 1; process.exit(3)")
	assert.True(t, resp.Ended)
	assert.Contains(t, strings.Join(resp.Notes, " "), "exit code 3")
	assert.Equal(t, "'undefined'", value(b.code(t, "typeof x")))
}

// bare is a sandbox without Node.js in its image.
type bare struct{ sandbox.Runner }

func (b bare) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	cmd.Argv = []string{"sh", "-c", "exit 127"}
	return b.Runner.Start(ctx, cmd)
}

func TestAnImageWithoutNodeIsUnsupportedAndNamesAWayOut(t *testing.T) {
	box, err := sandboxtest.NewHost().Create(context.Background(), sandbox.Spec{ID: "bare", Image: "host", Workspace: t.TempDir()})
	require.NoError(t, err)
	defer box.Close(context.Background())
	e := javascript.New(&javascript.Options{Runner: func(context.Context) (sandbox.Runner, error) { return bare{box}, nil }})
	defer e.Close()
	_, err = e.Evaluate(t.Context(), evaltool.Request{Code: "1", Timeout: time.Minute})
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	assert.ErrorContains(t, err, "wisbox image build --with node")
}
