package wasm_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// expensive has loops of a few bytecodes around a host function that does much work.
var expensive = map[string]string{
	"ftruncate to and fro":      `os.ftruncate(fd, 30 << 20); os.ftruncate(fd, 0)`,
	"ftruncate in C's loops":    `all(r is None for r in map(os.ftruncate, repeat(fd), cycle((30 << 20, 0))))`,
	"ftruncate down by one":     `os.ftruncate(fd, 30 << 20); [os.ftruncate(fd, (30 << 20) - i) for i in range(100)]`,
	"write the same again":      `os.pwrite(fd, block, 0)`,
	"pwrite far behind the end": `os.pwrite(fd, b"x", 30 << 20); os.ftruncate(fd, 0)`,
	"read it all":               `os.pread(big, 30 << 20, 0)`,
	"open and forget":           `keep.append(opened("/tmp/x"))`,
	"list a full directory":     `os.listdir("/tmp/full")`,
	"look for a child":          `refused(os.rmdir, "/tmp/full")`,
	"random bytes":              `os.urandom(8 << 20)`,
	"long paths":                `os.path.exists(path)`,
	"unlink and write again":    `open("/tmp/y", "wb").write(block); os.unlink("/tmp/y")`,
	"print":                     `os.write(2, block)`,
	"ask for the host's files":  `os.path.exists("/.wisbox/host/a") or refused(open, "/.wisbox/host/nothing")`,
	"posix_fallocate":           `os.posix_fallocate(fd, 0, 30 << 20); os.ftruncate(fd, 0)`,
	"scandir again and again":   `next(os.scandir("/tmp/full"))`,
	"sleep for nothing":         `time.sleep(0)`,
}

const prepared = `
import os, time
from itertools import cycle, repeat
fd = os.open("/tmp/f", os.O_RDWR | os.O_CREAT)
os.mkdir("/tmp/full")
for i in range(300): os.close(os.open(f"/tmp/full/{i}", os.O_CREAT | os.O_WRONLY))
block = bytes(1 << 20)
path = "/" + "a/" * (2 << 20)
keep = []
def refused(f, *args):
    try: f(*args)
    except OSError: pass
def opened(name):
    try: return os.open(name, os.O_RDWR | os.O_CREAT)
    except OSError: return 0
big = fd
%s
while True:
    %s
`

func endless(body string) string {
	setup := ""
	if strings.Contains(body, "big,") {
		setup = `os.ftruncate(fd, 30 << 20)`
	}
	return fmt.Sprintf(prepared, setup, body)
}

// TestTimeEndsWhatHostFunctionsDo, even with plenty of fuel. Earlier, the work between two checks of the clock took
// most of a minute.
func TestTimeEndsWhatHostFunctionsDo(t *testing.T) {
	e := newEngine(t, &wasm.Options{Fuel: 1 << 60})
	require.NoError(t, e.Warm(context.Background()))
	for name, body := range expensive {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			resp := evaluate(t, e, evaltool.Request{Code: endless(body), Timeout: time.Second})
			assert.Equal(t, evaltool.StatusTimedOut, resp.Status, "%s %v", resp.Stderr, resp.Notes)
			assert.Equal(t, []string{"the time of 1s was over"}, resp.Notes)
			assert.Less(t, time.Since(start), 30*time.Second)
		})
	}
}

// TestCancellationEndsWhatHostFunctionsDo: the same for a cancelled call.
func TestCancellationEndsWhatHostFunctionsDo(t *testing.T) {
	e := newEngine(t, &wasm.Options{Fuel: 1 << 60})
	require.NoError(t, e.Warm(context.Background()))
	for name, body := range expensive {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			defer cancel()
			ctx, stop := context.WithCancel(ctx)
			context.AfterFunc(ctx, stop)
			start := time.Now()
			_, err := e.Session(nil).Evaluate(ctx, evaltool.Request{Code: endless(body), Timeout: time.Hour, Sandbox: evaltool.SandboxWasm})
			require.NoError(t, err)
			assert.Less(t, time.Since(start), 30*time.Second)
		})
	}
}

// TestFuelPaysForHostFunctions: only fuel bounds the work of the loops, which is the same on every run.
func TestFuelPaysForHostFunctions(t *testing.T) {
	if hosttest.Raced {
		t.Skip("the race detector makes the fuel last longer than an evaluation's 5 s; the run without it does this")
	}
	const fuel = 40_000_000 // a tenth of the default, since an evaluation also ends after 5 s
	e := newEngine(t, &wasm.Options{Fuel: fuel})
	require.NoError(t, e.Warm(context.Background())) // compiling is not part of the 5 s
	turns := func(body string) int {
		code := strings.Replace(endless(body), "    "+body, "    n += 1; print(n)\n    "+body, 1)
		code = strings.Replace(code, "while True", "n = 0\nwhile True", 1)
		out, failure, err := e.Eval(context.Background(), code, nil)
		require.NoError(t, err)
		require.Equal(t, "limit: the fuel of 40000000 units was used up", failure, body)
		lines := strings.Split(out, "\n")
		n, err := strconv.Atoi(lines[len(lines)-1])
		require.NoError(t, err)
		return n
	}
	body := expensive["ftruncate to and fro"]
	n := turns(body)
	assert.Equal(t, n, turns(body))
	assert.Less(t, n, fuel/((30<<20)/16)+1)
}

// TestNoPanicOfGoIsShown: numbers at the ends of their ranges are errors of the program, with WASI's error numbers.
func TestNoPanicOfGoIsShown(t *testing.T) {
	const code = `
import os
fd = os.open("/tmp/f", os.O_RDWR | os.O_CREAT)
os.write(fd, b"abc")
most = 2**63 - 1
said = []
def attempt(what, f, *args):
    try: said.append((what, "ok", f(*args)))
    except (OSError, OverflowError, ValueError, MemoryError) as e: said.append((what, type(e).__name__, getattr(e, "errno", 0)))
for at in (most, most - 1, most - 2, 2**62, 2**40, 2**32, 2**31, -1, -2**63):
    attempt("pwrite", os.pwrite, fd, b"xyz", at)
    attempt("pwritev", os.pwritev, fd, [b"x", b"y", b""], at)
    attempt("pread", os.pread, fd, 10, at)
    attempt("truncate", os.ftruncate, fd, at)
    attempt("fallocate", os.posix_fallocate, fd, at, 1)
    attempt("fallocate", os.posix_fallocate, fd, 1, at)
    for whence in (0, 1, 2):
        attempt("seek", os.lseek, fd, at, whence)
        attempt("write", os.write, fd, b"xyz")
        attempt("read", os.read, fd, 10)
    os.lseek(fd, 0, 0)
    attempt("fadvise", os.posix_fadvise, fd, at, at, 0)
    attempt("utime", lambda: os.utime("/tmp/f", ns=(at, at)))
attempt("listdir", os.listdir, "/" + "x" * 100000)
attempt("open", os.open, "/" + "../" * 2000, 0)
attempt("writev", os.writev, fd, [b""] * 2000)
attempt("urandom", os.urandom, 1 << 28)
attempt("read", os.read, fd, 1 << 28)
{w for w, kind, n in said}, [s for s in said if s[1] == "ok" and s[0] in ("pwrite", "write") and s[2] != 3]
`
	resp := run(t, code)
	require.NotNil(t, resp.Value, "%s %v", resp.Stderr, resp.Notes)
	assert.Contains(t, *resp.Value, ", [])")
	for _, text := range append(resp.Notes, resp.Stderr, *resp.Value) {
		assert.NotContains(t, text, "goroutine")
		assert.NotContains(t, text, "runtime error")
	}
}

func TestAProgramHasSoManyFilesOpen(t *testing.T) {
	resp := run(t, `
import os
fds = []
try:
    while True: fds.append(os.open("/tmp/f", os.O_RDWR | os.O_CREAT))
except OSError as e: print(e.strerror)
n = len(fds)
for fd in fds: os.close(fd)
open("/tmp/g", "w").close()
100 < n < 300`)
	assert.Equal(t, "True", *resp.Value)
	assert.Equal(t, "No file descriptors available\n", resp.Stdout)
}
