package python_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/hosttest"
)

func TestKeptNamesLiveOn(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "import asyncio\nx = 20\ndef f(): return 1 / 0\nevent = asyncio.Event()\ntask = asyncio.ensure_future(event.wait()) if False else None")
	resp := b.keptCode(t, "x += 22\nx")
	assert.Equal(t, "42", value(resp))
	assert.Equal(t, "42", resp.Globals["x"])
	assert.Equal(t, "<none>", value(b.code(t, "x = 1")), "fresh calls go beside it")
	resp = b.keptCode(t, "f()")
	assert.Contains(t, resp.Stderr, `File "<code>", line 3, in f`)
	assert.Contains(t, resp.Stderr, "def f(): return 1 / 0", "lines of an earlier call")
}

func TestContextsAndSandboxesHaveNamesOfTheirOwn(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"", "a", "b"} {
		b.eval(t, evaltool.Request{Code: "x = '" + name + "'", Kept: true, Context: name})
	}
	for _, name := range []string{"", "a", "b"} {
		assert.Equal(t, "'"+name+"'", value(b.eval(t, evaltool.Request{Code: "x", Kept: true, Context: name})))
	}
}

func TestStreamsOfKeptCallsAreApart(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ code, stdout, stderr string }{
		{"print('one')", "one\n", ""},
		{"import os, sys; os.system('echo two'); print('err', file=sys.stderr)", "two\n", "err\n"},
		{"3", "", ""},
		{"print('x' * 200_000)", strings.Repeat("x", 4093) + "...", ""},
		{"print('five', end='')", "five", ""},
		{"import os; os.close(1); os.close(2)", "", ""},
		{"print('back')", "back\n", ""},
		{"import sys; sys.stdout = open('/dev/null', 'w')", "", ""},
	} {
		resp := b.keptCode(t, c.code)
		require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
		assert.Equal(t, c.stdout, resp.Stdout, c.code)
		assert.Equal(t, c.stderr, resp.Stderr, c.code)
	}
}

func TestATimeoutKeepsTheNames(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "z = 5")
	for _, code := range []string{
		"while True: pass", "import time; time.sleep(60)", "import asyncio\nawait asyncio.sleep(60)",
		"import subprocess\nsubprocess.run(['sleep', '60'])",
		"try:\n  while True: pass\nexcept BaseException: pass",
	} {
		resp := b.eval(t, evaltool.Request{Code: "print('begun')\n" + code, Kept: true, Timeout: time.Second})
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status, code)
		assert.Equal(t, "begun\n", resp.Stdout)
		assert.Equal(t, evaltool.TimeoutText, resp.Stderr)
		assert.True(t, resp.Failed())
		assert.Contains(t, strings.Join(resp.Notes, " "), "still there")
		assert.Equal(t, "5", value(b.keptCode(t, "z")))
	}
}

func TestACancelledKeptCallKeepsTheNames(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "z = 5")
	ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
	resp, err := b.Evaluate(ctx, evaltool.Request{Code: "open('begun', 'w').close()\nwhile True: pass", Sandbox: evaltool.SandboxContainer, Kept: true, Timeout: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, evaltool.StatusCancelled, resp.Status)
	assert.Equal(t, "5", value(b.keptCode(t, "z")))
}

func TestCodeThatCanNotBeInterruptedLosesItsNames(t *testing.T) {
	b := newBench(t)
	for _, code := range []string{
		"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
		"import time\nwhile True:\n try: time.sleep(9)\n except BaseException: pass",
	} {
		b.keptCode(t, "z = 5")
		resp := b.eval(t, evaltool.Request{Code: code, Kept: true, Timeout: 200 * time.Millisecond})
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
		assert.Contains(t, strings.Join(resp.Notes, " "), "names are lost", code)
		assert.Equal(t, "False", value(b.keptCode(t, "'z' in globals()")))
	}
}

func TestAnInterpreterThatDiesIsSaidAndReplaced(t *testing.T) {
	b := newBench(t)
	for _, code := range []string{
		"import os; os._exit(9)", "import os; os.kill(os.getpid(), 11)", "import os; os.closerange(0, 4096)",
		channelWriter + "write(b'\\xff\\xff\\xff\\xff')",
	} {
		b.keptCode(t, "q = 1")
		resp := b.keptCode(t, code)
		assert.True(t, resp.Failed())
		assert.True(t, resp.Ended)
		assert.Contains(t, strings.Join(resp.Notes, " "), "lost")
		assert.Equal(t, "False", value(b.keptCode(t, "'q' in globals()")))
	}
}

func TestDyingBetweenCallsIsSaid(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, `import os, threading, time
def die():
    while not os.path.exists("die"): time.sleep(0.01)
    os._exit(0)
threading.Thread(target=die).start()`)
	b.makeFile(t, "die")
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(b.keptCode(t, "1").Notes, " "), "lost")
	}, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, "1", value(b.keptCode(t, "1")))
}

func TestResetForgetsTheNamesOfItsContext(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "x = 1")
	b.eval(t, evaltool.Request{Code: "x = 2", Kept: true, Context: "other"})
	require.NoError(t, b.Reset(context.Background(), ""))
	assert.Equal(t, "False", value(b.keptCode(t, "'x' in globals()")))
	assert.Equal(t, "2", value(b.eval(t, evaltool.Request{Code: "x", Kept: true, Context: "other"})))
}

func TestCloseEndsWhatRuns(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "1")
	var wg sync.WaitGroup
	wg.Go(func() {
		resp, err := b.Evaluate(context.Background(), evaltool.Request{Code: "while True: pass", Sandbox: evaltool.SandboxContainer, Kept: true, Timeout: time.Minute})
		assert.NoError(t, err)
		assert.True(t, resp.Failed())
	})
	require.Eventually(t, func() bool { return b.Engine.Busy() }, 30*time.Second, time.Millisecond)
	require.NoError(t, b.Close())
	wg.Wait()
}

func TestKeptCallsAtOnceWaitForEachOther(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "n = 0")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { b.keptCode(t, "m = n\nimport time; time.sleep(0.01)\nn = m + 1") })
	}
	wg.Wait()
	assert.Equal(t, "10", value(b.keptCode(t, "n")))
}

func TestThreadsOfAKeptInterpreterDoNotHoldFreshCalls(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "import threading, time\nfor _ in range(4): threading.Thread(target=time.sleep, args=(60,)).start()")
	assert.Equal(t, "2", value(b.code(t, "1 + 1")))
	assert.Equal(t, "3", value(b.keptCode(t, "1 + 2")))
}

func TestForkedChildrenOfAKeptCallAreNotHeard(t *testing.T) {
	b := newBench(t)
	resp := b.keptCode(t, "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('both')\nos.getpid()")
	assert.Equal(t, "both\nboth\n", resp.Stdout)
	assert.Equal(t, value(resp), value(b.keptCode(t, "os.getpid()")))
}

func TestTooManyContextsAreRefused(t *testing.T) {
	b := newBench(t)
	for name := range strings.SplitSeq("a b c d e f g h", " ") {
		b.eval(t, evaltool.Request{Code: "1", Kept: true, Context: name})
	}
	_, err := b.Evaluate(context.Background(), evaltool.Request{Code: "1", Kept: true, Context: "i", Timeout: time.Second, Sandbox: evaltool.SandboxContainer})
	assert.ErrorContains(t, err, "limit")
	require.NoError(t, b.Reset(context.Background(), "a"))
	assert.Equal(t, "1", value(b.eval(t, evaltool.Request{Code: "1", Kept: true, Context: "i"})))
}

func TestContextsHaveDirectoriesAndVariables(t *testing.T) {
	b := newBench(t)
	b.makeFile(t, "f")
	req := evaltool.Request{Code: "import os\nos.getcwd(), os.environ['A'], read_text('f'), list_files()", Kept: true, Context: "c", Dir: "/usr", ContextEnv: map[string]string{"A": "a"}}
	assert.Equal(t, "('/usr', 'a', '', ['f'])", value(b.eval(t, req)))
	req.Code, req.Dir = "os.chdir('/')", "/usr"
	b.eval(t, req)
	req.Code = "os.getcwd()"
	assert.Equal(t, "'/'", value(b.eval(t, req)), "it starts there, and goes where it likes")
	b.Cancel("c")
	require.NoError(t, b.Reset(t.Context(), "c"))
	req.Code = "import os\nos.getcwd()"
	assert.Equal(t, "'/usr'", value(b.eval(t, req)))
	req.Context, req.Dir = "d", "/none"
	assert.Equal(t, "'"+b.workspace+"'", value(b.eval(t, req)))
}

func TestARestartStopsWhatRuns(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		resp, err := b.Evaluate(context.Background(), evaltool.Request{Code: "z = 1\nwhile True: pass", Sandbox: evaltool.SandboxContainer, Kept: true, Timeout: time.Minute})
		assert.NoError(t, err)
		assert.Equal(t, evaltool.StatusCancelled, resp.Status)
	})
	require.Eventually(t, func() bool { return b.Engine.Busy() }, 30*time.Second, time.Millisecond)
	b.Cancel("")
	require.NoError(t, b.Reset(t.Context(), ""))
	wg.Wait()
	assert.Equal(t, "False", value(b.keptCode(t, "'z' in globals()")))
}

// TestADirectoryThatIsNoneIsNoError: the workspace remains the directory.
func TestADirectoryThatIsNoneIsNoError(t *testing.T) {
	b := newBench(t)
	for i, dir := range []string{"none", "a\x00b"} {
		resp := b.eval(t, evaltool.Request{Code: "import os; os.getcwd()", Kept: true, Context: fmt.Sprint(i), Dir: dir})
		assert.Equal(t, "'"+b.workspace+"'", value(resp), resp.Notes)
	}
}
