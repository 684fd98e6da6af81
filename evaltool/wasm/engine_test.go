package wasm_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

var _ rlm.Evaluator = (*wasm.Engine)(nil)

func TestCodeIsEvaluatedFromNothing(t *testing.T) {
	resp := run(t, "import os\nx = 6\nopen('f', 'w').write('x')\nos.chdir('/tmp')\nprint('hi')\nx * 7")
	assert.Equal(t, evaltool.StatusExited, resp.Status)
	assert.Equal(t, "42", *resp.Value)
	assert.Equal(t, "hi\n", resp.Stdout)
	assert.Equal(t, map[string]string{"x": "6"}, resp.Globals)
	resp = run(t, "import os\n('x' in globals(), os.getcwd(), os.listdir(), sorted(os.environ))")
	assert.Equal(t, "(False, '/workspace', [], [])", *resp.Value)
}

func TestWhatCodeDoesIsToldApart(t *testing.T) {
	for _, c := range []struct{ name, code, status, says string }{
		{"exception", "1/0", "exception", "ZeroDivisionError"},
		{"syntax", "def def", "exception", "SyntaxError"},
		{"the user's own lines", "x = 1\n\nraise ValueError(x)", "exception", "File \"<code>\", line 3"},
		{"recursion", "def f(n): return f(n + 1)\nf(0)", "exception", "RecursionError"},
		{"memory", "bytearray(600 << 20)", "exception", "MemoryError"},
		{"no programs", "import subprocess\nsubprocess.run(['true'])", "exception", "OSError"},
		{"no threads", "import threading\nthreading.Thread(target=print).start()", "exception", "can't start new thread"},
		{"no network", "import socket\nsocket.socket()", "exception", "Error"},
		{"no files", "open('/etc/passwd')", "exception", "FileNotFoundError"},
		{"no stdin", "input()", "exception", "EOFError"},
		{"what is awaited never comes", "import asyncio\nawait asyncio.Event().wait()", "exception", "can never happen"},
		{"files are bounded", "open('f', 'w').write('x' * (40 << 20))", "exception", "OSError"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := run(t, c.code)
			assert.Equal(t, c.status, resp.Status)
			assert.Contains(t, resp.Stderr, c.says)
			assert.NotContains(t, resp.Stderr, "<wisbox>")
		})
	}
}

func TestAfterAnExceptionWhatWasSetBeforeIsTold(t *testing.T) {
	resp := evaluate(t, engine(t), evaltool.Request{Code: "x = [1]\nwrite_text('q', 'abc')\n1/0", Fields: []string{"x", "y"}})
	assert.Equal(t, evaltool.StatusException, resp.Status)
	assert.Equal(t, map[string]string{"x": "[1]"}, resp.Globals)
	assert.Equal(t, map[string]string{"x": "[1]"}, resp.Fields)
	assert.Equal(t, []evaltool.Queued{{Path: "/workspace/q", Mode: "overwrite", Content: "abc"}}, resp.Writes)
}

func TestAnInterpreterThatExitsIsSaid(t *testing.T) {
	resp := run(t, "import os\nprint('out', flush=True)\nos._exit(9)")
	assert.True(t, resp.Ended)
	assert.Equal(t, "out\n", resp.Stdout)
	assert.Contains(t, resp.Notes[0], "exit code 9")
}

// TestACrashIsSaidAndHurtsNobody: endless recursion in C overflows the stack.
func TestACrashIsSaidAndHurtsNobody(t *testing.T) {
	resp := run(t, "class A:\n def __repr__(self): return repr(self)\nrepr(A())")
	assert.True(t, resp.Failed())
	if resp.Ended {
		assert.Contains(t, resp.Notes[0], "crashed")
	}
	assert.Equal(t, "2", *run(t, "1+1").Value)
}

// TestEveryLoopEndsByItsFuel, also loops in the interpreter's own C code.
func TestEveryLoopEndsByItsFuel(t *testing.T) {
	for _, code := range []string{
		"while True: pass", "10 ** 10000000", "import re\nre.match('(a+)+$', 'a' * 40 + 'b')", "sum(iter(int, 1))",
		"try:\n while True: pass\nexcept BaseException: pass", "x = 'a' * (1 << 20)\nwhile True: x.replace('a', 'b')",
	} {
		resp := evaluate(t, engine(t), evaltool.Request{Code: "print('begun', flush=True)\n" + code, Fuel: 10_000_000})
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status, code)
		assert.Equal(t, "begun\n", resp.Stdout)
		assert.Contains(t, resp.Stderr, evaltool.TimeoutText)
		assert.Contains(t, resp.Notes[0], "10000000 units")
	}
}

// TestFuelIsDeterministic finds the minimum fuel twice.
func TestFuelIsDeterministic(t *testing.T) {
	e := engine(t)
	enough := func(fuel int64) bool {
		return evaluate(t, e, evaltool.Request{Code: "sum(range(1000))", Fuel: fuel}).Status == evaltool.StatusExited
	}
	low, high := int64(0), int64(2_000_000)
	require.True(t, enough(high))
	for high-low > 1 {
		if middle := (low + high) / 2; enough(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	for range 3 {
		assert.True(t, enough(high))
		assert.False(t, enough(high-1))
	}
}

func TestAnyFiniteFuelIsAnEnd(t *testing.T) {
	e := engine(t)
	rapid.Check(t, func(rt *rapid.T) {
		resp := evaluate(t, e, evaltool.Request{
			Code: rapid.SampledFrom([]string{"1", "while True: pass", "print('x')\n1/0", "import json"}).Draw(rt, "code"),
			Fuel: rapid.Int64Range(1, 300_000).Draw(rt, "fuel"),
		})
		require.Contains(rt, []string{evaltool.StatusExited, evaltool.StatusException, evaltool.StatusTimedOut}, resp.Status)
	})
}

func TestTimeEndsSleepsAndLoops(t *testing.T) {
	for _, code := range []string{"import time\ntime.sleep(3600)", "while True: pass", "import asyncio\nawait asyncio.sleep(3600)"} {
		began := time.Now()
		resp := evaluate(t, engine(t), evaltool.Request{Code: code, Timeout: 200 * time.Millisecond})
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
		assert.Less(t, time.Since(began), 20*time.Second)
	}
}

func TestACallerWhoIsGoneEndsTheCode(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	e := engine(t)
	require.NoError(t, e.Warm(ctx))
	time.AfterFunc(50*time.Millisecond, cancel)
	resp, err := e.Session(nil).Evaluate(ctx, evaltool.Request{Code: "while True: pass", Timeout: 5 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, evaltool.StatusCancelled, resp.Status)
}

func TestRunsAreTheSameUnlessAskedOtherwise(t *testing.T) {
	code := "import random, os, time, uuid\n(random.random(), hash('a'), os.urandom(4), time.time(), uuid.uuid4(), id(object()))"
	assert.Equal(t, *run(t, code).Value, *run(t, code).Value)
	real := newEngine(t, &wasm.Options{Real: true})
	assert.Empty(t, real.Version())
	first := evaluate(t, real, evaltool.Request{Code: "import random, time\n(random.random(), time.time() > 1.75e9)"})
	second := evaluate(t, real, evaltool.Request{Code: "import random, time\n(random.random(), time.time() > 1.75e9)"})
	assert.NotEqual(t, *first.Value, *second.Value)
	assert.Contains(t, *first.Value, "True")
}

func TestReadsAndWritesArePassed(t *testing.T) {
	resp := evaluate(t, engine(t), evaltool.Request{
		Code:    "write_text('out/a', read_text('d/in') + '!')\nwrite_text('out/a', '?', 'append')\nn = g + 1\n(reads['d/in'], open('d/in').read(), list_files())",
		Globals: map[string]string{"g": "1"}, Reads: []evaltool.File{{Path: "d/in", Text: "é\r\nb"}}, Fields: []string{"n", "missing"},
	})
	require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
	assert.Equal(t, `('é\r\nb', 'é\nb', ['d/in', 'out/a'])`, *resp.Value)
	assert.Equal(t, map[string]string{"n": "2"}, resp.Fields)
	require.Len(t, resp.Writes, 1)
	assert.Equal(t, "out/a", strings.TrimPrefix(resp.Writes[0].Path, "/workspace/"))
	assert.Equal(t, "é\r\nb!?", resp.Writes[0].Content)
	assert.Equal(t, "overwrite", resp.Writes[0].Mode)
}

func TestKeptNamesLiveOnAndSurviveATimeout(t *testing.T) {
	s := engine(t).Session(nil)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	within := func(timeout time.Duration, code, name string) evaltool.Response {
		resp, err := s.Evaluate(context.Background(), evaltool.Request{Code: code, Kept: true, Context: name, Timeout: timeout})
		require.NoError(t, err)
		return resp
	}
	kept := func(code, name string) evaltool.Response { return within(time.Minute, code, name) }
	kept("x = 20\nopen('f', 'w').write('kept')", "")
	resp := within(300*time.Millisecond, "x = 99\nwhile True: pass", "")
	assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
	assert.Contains(t, resp.Notes[1], "as they were before")
	assert.Equal(t, "(20, 'kept')", *kept("x, open('f').read()", "").Value)
	kept("1/0", "")
	assert.Equal(t, "22", *kept("x += 2\nx", "").Value)
	assert.Equal(t, "False", *kept("'x' in globals()", "other").Value)
	require.NoError(t, s.Reset(context.Background(), ""))
	assert.Equal(t, "False", *kept("'x' in globals()", "").Value)
}

func TestKeptInterpretersAreBounded(t *testing.T) {
	s := engine(t).Session(nil)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for i := range wasm.MaxContexts + 1 {
		_, err := s.Evaluate(context.Background(), evaltool.Request{Code: "1", Kept: true, Context: strings.Repeat("c", i), Timeout: 5 * time.Second})
		assert.Equal(t, i == wasm.MaxContexts, tool.KindOf(err) == tool.Limit)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	s := engine(t).Session(nil)
	ended := make(chan evaltool.Response, 1)
	go func() {
		resp, err := s.Evaluate(context.Background(), evaltool.Request{Code: "while True: pass", Kept: true, Timeout: time.Minute})
		assert.NoError(t, err)
		ended <- resp
	}()
	require.Eventually(t, func() bool { return s.Close() == nil && len(ended) == 1 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, evaltool.StatusCancelled, (<-ended).Status)
}

func TestKeptMemoryIsBoundedTogether(t *testing.T) {
	s := newEngine(t, &wasm.Options{Memory: 40 << 20}).Session(nil)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	kept := func(name string) error {
		_, err := s.Evaluate(context.Background(), evaltool.Request{Code: "x = b'x' * (15 << 20)", Kept: true, Context: name, Timeout: 5 * time.Second})
		return err
	}
	require.NoError(t, kept("a"))
	require.NoError(t, kept("a"), "in place of the one before")
	require.NoError(t, kept("b"))
	assert.Equal(t, tool.Limit, tool.KindOf(kept("c")))
	require.NoError(t, s.Reset(context.Background(), "a"))
	assert.NoError(t, kept("c"))
}

func TestLimitsAboveTheEnginesAreRefused(t *testing.T) {
	for field, req := range map[string]evaltool.Request{"fuel": {Fuel: wasm.DefaultFuel + 1}, "memory": {Memory: wasm.DefaultMemory + 1}} {
		_, err := engine(t).Session(nil).Evaluate(context.Background(), req)
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
		assert.Equal(t, field, tool.AsError(err).Field)
	}
}

func TestEvaluationsRunSideBySide(t *testing.T) {
	e := engine(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			resp := evaluate(t, e, evaltool.Request{Code: "x = [n] * 10000\nsum(x)", Globals: map[string]string{"n": strconv.Itoa(i)}})
			assert.Equal(t, evaltool.StatusExited, resp.Status)
			assert.Equal(t, strconv.Itoa(i*10_000), *resp.Value)
		})
	}
	group.Wait()
}

func TestEvalGivesWhatIsPrintedAndThenTheResult(t *testing.T) {
	for _, c := range []struct{ name, code, output, failure string }{
		{"nothing", "", "", ""},
		{"printed", "print('a\\n\\n')", "a", ""},
		{"the result", "result = len(text)", "5", ""},
		{"both", "print('a', end='')\nresult = [text]", "a\n['é\\r\\nbc']", ""},
		{"None", "result = None", "None", ""},
		{"an exception", "print('before')\n1/0", "before", "ZeroDivisionError"},
		{"stderr is not output", "import sys\nprint('x', file=sys.stderr)\nresult = 1", "1", ""},
		{"too much", "while True: print('x' * 1000)", strings.TrimRight(strings.Repeat(strings.Repeat("x", 1000)+"\n", 4190), "\n"), "the output is too long"},
		{"too long a result", "result = 'x' * (5 << 20)", strings.Repeat("x", 4<<20), "the output is too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inputs := map[string]string{"text": "é\r\nbc"}
			output, failure, err := engine(t).Eval(context.Background(), c.code, inputs)
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(output, c.output), "%.100s", output)
			assert.Contains(t, failure, c.failure)
			assert.Equal(t, c.failure == "", failure == "", failure)
			assert.Equal(t, map[string]string{"text": "é\r\nbc"}, inputs)
		})
	}
}

func TestEvalOfALargeInput(t *testing.T) {
	output, failure, err := engine(t).Eval(context.Background(), "result = len(text), text.count('b')", map[string]string{"text": strings.Repeat("ab", 10<<20)})
	require.NoError(t, err)
	assert.Empty(t, failure)
	assert.Equal(t, "(20971520, 10485760)", output)
}

func TestEvalIsDeterministicAndSeesItsVariables(t *testing.T) {
	e := engine(t)
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text")
		first, failure, err := e.Eval(context.Background(), "import random\nresult = (x, hash(x), random.random())", map[string]string{"x": text})
		require.NoError(rt, err)
		require.Empty(rt, failure)
		second, _, err := e.Eval(context.Background(), "import random\nresult = (x, hash(x), random.random())", map[string]string{"x": text})
		require.NoError(rt, err)
		require.Equal(rt, first, second)
	})
}

func BenchmarkEvaluate(b *testing.B) {
	e := engine(b)
	for name, code := range map[string]string{
		"one":     "1+1",
		"imports": "import json, re, csv, datetime, decimal, math, random, string, statistics, itertools, functools, collections, textwrap, difflib, hashlib, base64, uuid, html, struct, zlib",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				evaluate(b, e, evaltool.Request{Code: code})
			}
		})
	}
}

func BenchmarkTheFirstCallOfAProcess(b *testing.B) {
	require.NoError(b, engine(b).Warm(context.Background()))
	for b.Loop() {
		e, err := wasm.New(nil)
		require.NoError(b, err)
		evaluate(b, e, evaltool.Request{Code: "1+1"})
		require.NoError(b, e.Close())
	}
}

func TestEvalSeesInputsOfAnyName(t *testing.T) {
	ops, err := rlm.New(&rlm.Options{Eval: engine(t)})
	require.NoError(t, err)
	for _, name := range []string{"print", "len", "reads", "result", "a-b", "1a", "__name__", "class"} {
		_, err := ops.Bind(name, "text of "+name)
		require.NoError(t, err)
	}
	for args, want := range map[string]string{
		`{"code":"result = print","inputs":["print"]}`:                                              "text of print",
		`{"code":"result = len + str(__builtins__.len(len))","inputs":["len"]}`:                     "text of len11",
		`{"code":"import builtins\nbuiltins.print(reads)","inputs":["reads","print"]}`:              "text of reads",
		`{"code":"","inputs":["result"]}`:                                                           "text of result",
		`{"code":"result = reads['a-b'] + globals()['1a']","inputs":["a-b","1a"]}`:                  "text of a-btext of 1a",
		`{"code":"result = __name__","inputs":["__name__"]}`:                                        "text of __name__",
		`{"code":"import builtins\nresult = builtins.len([n for n in globals() if n == 'class'])"}`: "0",
	} {
		out, err := ops.Do(t.Context(), "eval", []byte(args))
		require.NoError(t, err, args)
		assert.Equal(t, want, out.Result+out.Failure, args)
	}
}

// Without a container, restricted is the same interpreter as with one.
func TestRestrictedIsTheSameInterpreter(t *testing.T) {
	s := engine(t).Session(nil)
	restricted := func(code string, kept bool) evaltool.Response {
		resp, err := s.Evaluate(t.Context(), evaltool.Request{Code: code, Sandbox: evaltool.SandboxRestricted, Kept: kept, Timeout: 5 * time.Second})
		require.NoError(t, err)
		return resp
	}
	assert.Equal(t, "([1, 2], 3.0)", *restricted("x = y = [1]\ny += [2]\n(x, math.sqrt(9))", false).Value)
	for _, code := range []string{"import os", "open('f', 'w')", "().__class__", "class A: pass", "try: exec('1')\nexcept: pass"} {
		resp := restricted(code, false)
		assert.Equal(t, evaltool.StatusException, resp.Status, code)
		assert.Contains(t, resp.Stderr, "RestrictedError: ", code)
	}
	restricted("def f(n): return n + k\nk = 1", true)
	assert.Equal(t, "3", *restricted("f(2)", true).Value)
	resp := restricted("import os", true)
	assert.Equal(t, evaltool.StatusException, resp.Status, "kept names are no way out")
}
