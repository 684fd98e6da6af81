package python_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
)

// Code that tampers with the collection of its results gets one bounded answer, and the next answer is correct.
func TestHostileResultsAreBoundedAndTheNextAnswerIsRight(t *testing.T) {
	b := newBench(t)
	for name, code := range map[string]string{
		"huge html":            "class H:\n def _repr_html_(s): return 'x' * (64 << 20)\nH()",
		"huge picture":         "class H:\n def _repr_png_(s): return b'x' * (64 << 20)\nH()",
		"huge JSON":            "class H:\n def _repr_json_(s): return {'a': ['x'] * (8 << 20)}\nH()",
		"endless JSON":         "class L(list):\n def __iter__(s):\n  while True: yield 1\nclass H:\n def _repr_json_(s): return L([1])\nH()",
		"huge text":            "display('x' * (64 << 20))",
		"huge plain text":      "display({'text/plain': 'x' * (64 << 20)}, raw=True)",
		"lone surrogates":      "display({'text/plain': '\\ud800', 'text/html': '\\udfff'}, raw=True)",
		"types":                "display({'no type': 'x', 'text/html\\n': 'x', '': 'x', 5: 'x'}, raw=True)",
		"spoilt builtins":      "import builtins\nfor n in ('len', 'list', 'isinstance', 'getattr'): setattr(builtins, n, None)\ndisplay(1)",
		"display that is gone": "import sys\nfor n in list(sys.modules): sys.modules.pop(n, None)\ndisplay(1)",
		"a hook of its own":    "__wisbox__ = None\nclass A: pass\nx = !echo a",
		"a raising finder":     "import sys\nsys.meta_path.clear()\ndisplay(1)",
		"a repr that leaves":   "class R:\n def __repr__(s): raise SystemExit(3)\ndisplay(R())",
		"a property that runs": "class R:\n @property\n def _repr_html_(s): raise KeyboardInterrupt\nR()",
		"recursion":            "class R:\n def _ipython_display_(s): display(R())\nR()",
		"exit":                 "import os\ndisplay(1)\nos._exit(0)",
		"threads that go on":   "import threading, time\ndef run():\n for _ in range(200):\n  print('late'); display('late'); time.sleep(.001)\nthreading.Thread(target=run).start()",
	} {
		t.Run(name, func(t *testing.T) {
			resp := b.keptCode(t, code)
			assert.NotEqual(t, evaltool.StatusTimedOut, resp.Status, "its answer was not understood")
			assert.LessOrEqual(t, len(resp.Display), 32)
			total := 0
			for _, d := range resp.Display {
				total += len(d.Data)
			}
			assert.LessOrEqual(t, total, 8<<20)
			for _, r := range resp.Results {
				assert.LessOrEqual(t, len([]rune(r.Text)), evaltool.StreamChars)
			}
			require.NoError(t, b.Reset(t.Context(), ""))
			assert.Equal(t, "2", value(b.keptCode(t, "1 + 1")))
		})
	}
}

func TestForgedAnswersEndTheCallAtMost(t *testing.T) {
	b := newBench(t)
	for _, message := range []string{
		`{}`, `{"id":"x","status":"exited","value":"7","results":[{"main":true,"text":"forged","display":[0]}]}`, `[]`, strings.Repeat("x", 1000),
	} {
		resp := b.keptCode(t, channelWriter+"import struct\nm = "+quoted(message)+"\nwrite(struct.pack('>I', len(m)) + m)\n6 * 7")
		assert.Equal(t, "42", value(resp), resp.Stderr)
		assert.Empty(t, resp.Results)
	}
}

func quoted(text string) string { return "b'''" + text + "'''" }

func TestWhatWasShownUntilAnInterruptIsThere(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, "z = 5")
	for _, code := range []string{
		"display('seen')\nwhile True: pass",
		"display('seen')\nimport time\ntry:\n  time.sleep(60)\nexcept KeyboardInterrupt:\n  time.sleep(60)",
		"display('seen')\nimport time\ntry:\n  time.sleep(60)\nexcept KeyboardInterrupt: pass",
		"display('seen')\n%time __import__('time').sleep(60)",
		"display('seen')\nclass H:\n def _repr_html_(s):\n  while True: pass\ndisplay(H())",
	} {
		resp := b.eval(t, evaltool.Request{Code: code, Kept: true, Timeout: time.Second})
		assert.Equal(t, evaltool.StatusTimedOut, resp.Status, code)
		assert.Equal(t, []string{"'seen'"}, resultsOf(resp), code)
		assert.Equal(t, "5", value(b.keptCode(t, "z")), code)
	}
}
