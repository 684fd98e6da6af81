package python_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// followed evaluates with a feed that calls each.
func (b *bench) followed(ctx context.Context, t *testing.T, req evaltool.Request, each func(evaltool.Part)) evaltool.Response {
	t.Helper()
	req.Sandbox = evaltool.SandboxContainer
	if req.Timeout == 0 {
		req.Timeout = 20 * time.Second
	}
	feed := evaltool.NewFeed(ctx, each)
	req.Feed = feed
	resp, err := b.Evaluate(ctx, req)
	require.NoError(t, err)
	feed.Close(ctx)
	return resp
}

// parts returns all parts of an evaluation as short texts.
func (b *bench) parts(t *testing.T, kept bool, code string) (said []string, resp evaltool.Response) {
	t.Helper()
	resp = b.followed(t.Context(), t, evaltool.Request{Code: code, Kept: kept}, func(p evaltool.Part) { said = append(said, short(p)) })
	return said, resp
}

func short(p evaltool.Part) string {
	switch {
	case p.Count > 0:
		return fmt.Sprint("count ", p.Count)
	case p.Stdout != "":
		return "out " + p.Stdout
	case p.Stderr != "":
		return "err " + p.Stderr
	case p.Shown != nil:
		text := "shown " + p.Shown.Text
		if p.Shown.Main {
			text = "main " + p.Shown.Text
		}
		for _, d := range p.Shown.Display {
			text += " " + d.MIME
		}
		if p.Shown.JSON != nil {
			text += " json " + string(p.Shown.JSON)
		}
		return text
	}
	return "?"
}

func TestWhatTheCodeGivesComesWhileItRuns(t *testing.T) {
	b := newBench(t)
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			// Each step waits for the file that the reader of the previous step has created.
			code := `
import os, sys, time
def wait(name):
    while not os.path.exists(name): time.sleep(.001)
print("one"); wait("1")
sys.stderr.write("two"); wait("2")
os.system("echo three"); wait("3")
class H:
    def _repr_html_(s): return "<b>"
    def __repr__(s): return "H"
display(H()); wait("4")
print("five", end=""); wait("5")
[1, {"a": None}]`
			n := 0
			var said []string
			resp := b.followed(t.Context(), t, evaltool.Request{Code: code, Kept: kept}, func(p evaltool.Part) {
				said = append(said, short(p))
				if p.Count == 0 && n < 5 {
					n++
					b.makeFile(t, fmt.Sprint(n))
				}
			})
			require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
			assert.Equal(t, []string{"count 1", "out one\n", "err two", "out three\n", "shown H text/html", "out five", `main [1, {'a': None}] json [1, {"a": null}]`}, said)
			assert.Equal(t, "one\nthree\nfive", resp.Stdout, "the answer has it too")
			assert.Equal(t, "two", resp.Stderr)
			for i := range 5 {
				b.removeFile(t, fmt.Sprint(i+1))
			}
		})
	}
}

func TestAPrintIsOneMessage(t *testing.T) {
	b := newBench(t)
	var said []string
	code := "import os, time\nfor i in range(20):\n  print('line', i, sep='-')\n  while not os.path.exists(str(i)): time.sleep(.001)\n  os.remove(str(i))"
	n := 0
	for _, kept := range []bool{true, false} {
		said, n = nil, 0
		b.followed(t.Context(), t, evaltool.Request{Code: code, Kept: kept}, func(p evaltool.Part) {
			if p.Count == 0 {
				said = append(said, p.Stdout)
				b.makeFile(t, fmt.Sprint(n))
				n++
			}
		})
		require.Len(t, said, 20)
		assert.Equal(t, "line-19\n", said[19])
	}
	for _, c := range []struct{ code, want string }{
		{"print('a', file=None, flush=True)", "a\n"},
		{"print()", "\n"},
		{"import io\nf = io.StringIO()\nprint('a', file=f)\nprint(f.getvalue(), end='.')", "a\n."},
		{"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as f:\n  print('in')\nprint('out', f.getvalue())", "out in\n\n"},
		{"print('é\\ud800')", "é\\ud800\n"},
		{"print", "count 2"},
	} {
		text := ""
		b.followed(t.Context(), t, evaltool.Request{Code: c.code}, func(p evaltool.Part) { text += p.Stdout })
		if c.code != "print" {
			assert.Equal(t, c.want, text, c.code)
		}
	}
}

func TestWhatTheCodeRaisesIsAPart(t *testing.T) {
	b := newBench(t)
	for _, kept := range []bool{false, true} {
		resp := b.followed(t.Context(), t, evaltool.Request{Code: "print('x')\nraise ValueError('why\\nnot')", Kept: kept}, func(evaltool.Part) {})
		require.NotNil(t, resp.Raised)
		assert.Equal(t, "ValueError", resp.Raised.Name)
		assert.Equal(t, "why\nnot", resp.Raised.Value)
		assert.Contains(t, resp.Raised.Traceback, "line 2")
	}
	assert.Nil(t, b.keptCode(t, "1/0").Raised, "nobody asked")
}

func TestVariablesHoldForOneRun(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "import os\nos.environ['B'] = 'before'\ndef both(): return os.environ.get('A'), os.environ.get('B'), os.popen('echo $A $B').read()")
	req := evaltool.Request{Code: "os.environ['C'] = 'c'\nboth()", Kept: true, Env: map[string]string{"A": "a", "B": "b"}}
	assert.Equal(t, `('a', 'b', 'a b\n')`, value(b.eval(t, req)))
	assert.Equal(t, `(None, 'before', 'before\n')`, value(b.keptCode(t, "both()")))
	assert.Equal(t, "'c'", value(b.keptCode(t, "os.environ['C']")))
	req.Code = "1/0"
	b.eval(t, req)
	assert.Equal(t, `(None, 'before', 'before\n')`, value(b.keptCode(t, "both()")), "after an exception too")
	assert.Equal(t, `'a'`, value(b.eval(t, evaltool.Request{Code: "import os; os.environ['A']", Env: req.Env})), "a fresh one")
	b.eval(t, evaltool.Request{Code: "os.environ = {}", Kept: true, Env: req.Env})
	assert.Equal(t, "2", value(b.keptCode(t, "1 + 1")))
}

// A reader bounds a flood of output; stopped code doesn't wait for a reader.
func TestASlowReaderSlowsTheCodeAndATimeoutStopsIt(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "z = 5")
	for _, code := range []string{
		"while True: print('x' * 10_000)",
		"while True: display({'text/html': 'x' * 100_000}, raw=True); print('y' * 100_000)",
	} {
		stall := make(chan struct{})
		read := 0
		ctx, cancel := context.WithCancel(t.Context())
		feed := evaltool.NewFeed(ctx, func(p evaltool.Part) { read += len(p.Stdout); <-stall })
		resp, err := b.Evaluate(ctx, evaltool.Request{Code: code, Kept: true, Sandbox: evaltool.SandboxContainer, Timeout: time.Second, Feed: feed})
		require.NoError(t, err)
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
		assert.Contains(t, strings.Join(resp.Notes, " "), "still there", code)
		close(stall)
		feed.Close(ctx)
		cancel()
		assert.Equal(t, "5", value(b.keptCode(t, "z")))
	}
}

// A reader that leaves interrupts the code at any point, and the names stay.
func TestAReaderWhoLeavesInterruptsTheCode(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "z = 5")
	for i, code := range []string{
		"while True: print('x' * 10_000)", "while True: display('x')", "import time\ntime.sleep(60)", "input_ = !sleep 60",
		"while True: display({'text/html': 'x' * 3_000_000}, raw=True)",
	} {
		begun := fmt.Sprint("begun", i)
		ctx := hosttest.OnceThere(t, filepath.Join(b.workspace, begun))
		resp := b.followed(ctx, t, evaltool.Request{Code: "open('" + begun + "', 'w').close()\n" + code, Kept: true, Timeout: time.Minute}, func(evaltool.Part) {})
		assert.Equal(t, evaltool.StatusCancelled, resp.Status)
		assert.Contains(t, strings.Join(resp.Notes, " "), "still there", code)
		assert.Equal(t, "5", value(b.keptCode(t, "z")))
	}
}

func TestHostileCodeSpoilsNoStreamButItsOwn(t *testing.T) {
	b := newBench(t)
	for name, code := range map[string]string{
		"forged events":     channelWriter + "import struct\nfor m in (b'{\"id\":\"x\",\"count\":7}', b'{\"id\":\"\",\"shown\":{\"main\":true,\"text\":\"forged\"}}', b'[]', b'\\xff'):\n  write(struct.pack('>I', len(m)) + m)",
		"half a message":    channelWriter + "write(b'\\x00\\x00')",
		"a message's flood": channelWriter + "import struct\nm = b'x' * 1_000_000\nfor _ in range(50): write(struct.pack('>I', len(m)) + m)",
		"os._exit":          "print('x', flush=True)\nimport os\nos._exit(3)",
		"a signal":          "import os\nos.kill(os.getpid(), 11)",
		"forks":             "import os\npids = [os.fork() for _ in range(3)]\ndisplay('x'); print('y')",
		"late threads":      "import threading, time\ndef run():\n for _ in range(300):\n  print('late'); display('late'); time.sleep(.001)\nthreading.Thread(target=run, daemon=True).start()",
		"a huge text":       "display('x' * (256 << 20)); print('x' * (64 << 20))",
		"a huge list":       "[['x' * 1000] * 1000] * 1000",
		"a loop of a list":  "a = []\na.append(a)\na",
		"a spoilt print":    "import builtins, io\nbuiltins.print = None\nio.StringIO = None",
		"closed streams":    "import os\nos.close(1); os.close(2)",
	} {
		t.Run(name, func(t *testing.T) {
			shown := 0
			b.followed(t.Context(), t, evaltool.Request{Code: code, Kept: true, Timeout: 3 * time.Second}, func(p evaltool.Part) {
				if p.Shown != nil {
					shown++
					assert.NotEqual(t, "forged", p.Shown.Text)
				}
				assert.NotEqual(t, int64(7), p.Count)
			})
			assert.LessOrEqual(t, shown, 32)
			require.NoError(t, b.Reset(t.Context(), ""))
			var said atomic.Int32
			resp := b.followed(t.Context(), t, evaltool.Request{Code: "print(1)\n1 + 1", Kept: true}, func(evaltool.Part) { said.Add(1) })
			assert.Equal(t, "2", value(resp))
			assert.EqualValues(t, 3, said.Load())
		})
	}
}

// forger finds the id of its evaluation and the channel in the frames of the driver.
const forger = `import sys, os, struct, json
f = sys._getframe()
while 'answer' not in f.f_locals or 'reads' not in f.f_locals or not hasattr(f.f_locals.get('self'), 'channel'): f = f.f_back
ident, channel = f.f_locals['request']['id'], f.f_locals['self'].channel
def framed(message):
  data = json.dumps(message).encode()
  return struct.pack('>I', len(data)) + data
event = framed({'id': ident, 'shown': {'main': False, 'text': 'forged', 'display': []}})
`

// A process that forges events and reads no replies blocks nothing: sending a reply never waits.
func TestEventsWhoseReplyNobodyReadsEndWithTheirProcess(t *testing.T) {
	b := newBench(t)
	for _, kept := range []bool{false, true} {
		req := evaltool.Request{Code: forger + "os.write(channel.out, event * 5)\nos._exit(3)", Kept: kept}
		shown := 0
		resp := b.followed(t.Context(), t, req, func(p evaltool.Part) {
			if p.Shown != nil {
				shown++
			}
		})
		assert.True(t, resp.Ended)
		assert.Equal(t, 5, shown)
		assert.Equal(t, "2", value(b.eval(t, evaltool.Request{Code: "1 + 1", Kept: kept})))
	}
}

// A reader that reads nothing can't hold an interpreter beyond its time limit: here the answer is forged while the feed
// is full, and more follows.
func TestAReaderWhoTakesNothingHoldsNoInterpreter(t *testing.T) {
	b := newBench(t)
	code := forger + `
display({'text/html': 'x' * 1_040_000}, raw=True)
answer = framed({'id': ident, 'status': 'exited', 'globals': {}, 'names': {}, 'writes': [], 'display': [], 'results': []})
large = framed({'id': ident, 'shown': {'main': False, 'text': 'forged', 'display': [{'mime': 'text/html', 'data': 'x' * 90_000}]}})
open('begun', 'w').close()
channel.write(answer + large * 3)
while True: print('x' * 10_000)`
	try := func(restart bool, timeout time.Duration) (begins bool) {
		stall, ended := make(chan struct{}), make(chan error, 2)
		feed := evaltool.NewFeed(context.Background(), func(evaltool.Part) { <-stall })
		begun := hosttest.OnceThere(t, filepath.Join(b.workspace, "begun"))
		go func() {
			_, err := b.Evaluate(context.Background(), evaltool.Request{Code: code, Kept: true, Sandbox: evaltool.SandboxContainer, Timeout: timeout, Feed: feed})
			ended <- err
		}()
		select {
		case <-begun.Done():
		case err := <-ended:
			ended <- err
			assert.NoError(t, err)
			if _, err := os.Stat(filepath.Join(b.workspace, "begun")); err != nil { // it timed out before
				close(stall)
				feed.Close(t.Context())
				return false
			}
		}
		go func() {
			if restart {
				b.Cancel("")
			}
			ended <- b.Reset(context.Background(), "")
		}()
		for range 2 {
			select {
			case err := <-ended:
				assert.NoError(t, err)
			case <-time.After(30 * time.Second):
				assert.Fail(t, "it hangs", "restart %v", restart)
			}
		}
		close(stall)
		feed.Close(t.Context())
		b.removeFile(t, "begun")
		return true
	}
	assert.True(t, try(true, time.Hour))
	for timeout := time.Second; !try(false, timeout); timeout *= 2 {
		require.Less(t, timeout, 30*time.Second, "it never begins")
	}
}

// Each event gets a reply or is not sent: otherwise code would wait forever.
func TestEachEventHasItsReply(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "z = 5")
	for name, c := range map[string]struct {
		code  string
		shown int
	}{
		"many figures": {`import sys, types
class Figure:
  def savefig(self, file, **options): file.write(b'x')
figures = [Figure() for _ in range(40)]
plt = types.ModuleType('matplotlib.pyplot')
plt.get_fignums, plt.figure, plt.close = lambda: range(40), lambda n: figures[n], lambda all: None
sys.modules['matplotlib.pyplot'] = plt`, 32},
		"nested":     {"for i in range(31): display(1)\nclass H:\n  def _repr_html_(self):\n    display(2)\n    return 'x'\ndisplay(H())", 32},
		"too long":   {"display({'text/html': '\\x01' * (4 << 20), 'text/markdown': '\\x01' * (4 << 20)}, raw=True)", 0},
		"surrogates": {"display({'text/html': '\\ud800' * 3_000_000}, raw=True)", 1},
		"invalid":    {forger + "channel.write(framed({'id': ident, 'shown': {'text': 5}}))\nchannel.exactly(4)\nchannel.write(framed({'id': ident, 'shown': {'text': 'x' * 5000}}))\nchannel.exactly(4)\nNone", 0},
	} {
		t.Run(name, func(t *testing.T) {
			shown := 0
			resp := b.followed(t.Context(), t, evaltool.Request{Code: c.code, Kept: true}, func(p evaltool.Part) {
				if p.Shown != nil {
					shown++
				}
			})
			assert.NotEqual(t, evaltool.StatusTimedOut, resp.Status, resp.Notes)
			assert.False(t, resp.Ended, resp.Notes)
			assert.Equal(t, c.shown, shown)
			assert.Equal(t, "5", value(b.keptCode(t, "import sys; sys.modules.pop('matplotlib.pyplot', None); z")))
		})
	}
}

// Later output of a thread belongs to the next evaluation.
func TestThreadsThatGoOnDontSpoilTheNextEvaluation(t *testing.T) {
	b := newBench(t)
	b.parts(t, true, "import threading, time\nstop = False\ndef run():\n while not stop:\n  print('late'); display('late')\nthread = threading.Thread(target=run, daemon=True)\nthread.start()")
	for i := range 20 {
		_, resp := b.parts(t, true, fmt.Sprint(i, " + 1"))
		require.Equal(t, fmt.Sprint(i+1), value(resp))
	}
	b.parts(t, true, "stop = True\nthread.join()")
	said, _ := b.parts(t, true, "print('last')")
	assert.Equal(t, "out last\n", said[len(said)-1])
}

// Objects and output keep the order in which the code showed and printed them.
func TestObjectsAndOutputComeInTheOrderOfTheCode(t *testing.T) {
	b := newBench(t)
	for _, kept := range []bool{false, true} {
		said, _ := b.parts(t, kept, "for i in range(30):\n  print(i)\n  display(i)\nprint('end')\n'value'")
		want := []string{"count 1"}
		for i := range 30 {
			want = append(want, fmt.Sprintf("out %d\n", i), fmt.Sprintf("shown %d", i))
		}
		assert.Equal(t, append(want, "out end\n", "main 'value'"), said)
	}
}
