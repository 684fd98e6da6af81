package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// A cancelled call returns soon with the displays so far, and its names exist in the next call.
func TestACancelledEvaluationKeepsItsNamesAndWhatItShowed(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{MaxEvalTimeout: 2 * time.Minute})
	call(t, s, "evaluate_python", args{"code": "z = 5", "state": "kept"})
	for name, code := range map[string]string{
		"a loop":          "while True: pass",
		"caught once":     "import time\ntry:\n  time.sleep(60)\nexcept KeyboardInterrupt: pass\ntime.sleep(60)",
		"a sleep":         "import time\ntime.sleep(60)",
		"a command":       "!sleep 60",
		"a deaf command":  "!trap '' INT TERM; sleep 60 & sleep 60",
		"a captured one":  "x = !sleep 60 | cat",
		"a wait":          "import asyncio\nawait asyncio.sleep(60)",
		"a thread beside": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\ntime.sleep(60)",
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(args{"code": "display('seen')\nopen('begun', 'w').close()\n" + code, "state": "kept", "timeout": 120})
			require.NoError(t, err)
			begun := filepath.Join(s.WorkspacePath(), "begun")
			ctx := hosttest.OnceThere(t, begun)
			res, err := s.Call(ctx, "evaluate_python", raw)
			require.NoError(t, err)
			a, err := answerOf(res)
			require.NoError(t, err)
			assert.Equal(t, "cancelled", a.str("status"))
			assert.Contains(t, res.Text, "shown:\n'seen'\n")
			require.NoError(t, os.Remove(begun))
			assert.Equal(t, "5", call(t, s, "evaluate_python", args{"code": "z", "state": "kept"}).str("value_repr"))
		})
	}
}
