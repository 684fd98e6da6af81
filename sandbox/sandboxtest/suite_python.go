package sandboxtest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

const echoProgram = `
import json, os, sys
calls = 0

def main(inp, out):
    global calls
    calls += 1
    request = json.load(inp)
    print("said", request["say"])
    print("warned", file=sys.stderr)
    answer = {"calls": calls, "stdin": sys.stdin.read(), "env": os.environ.get("NAME"), "dir": os.path.basename(os.getcwd()), "uid": os.getuid()}
    out.write(json.dumps(answer).encode())
    sys.exit(request.get("exit", 0))
`

// orderProgram writes more between its messages than any window holds. It waits until each message has arrived, so each
// write is one message.
const orderProgram = `
import os

def main(inp, out):
    for text in b"", b"x", b"x" * 300_001, b"x":
        for fd in 1, 2:
            left = memoryview(text)
            while left:
                left = left[os.write(fd, left):]
        out.write(b"m")
        out.flush()
        inp.read(1)
`

// ordered records how much its streams had received when a message came, and confirms the message.
type ordered struct {
	bytes  atomic.Int64
	before []int64
	came   io.Writer
}

func (o *ordered) Write(p []byte) (int, error) {
	for range p {
		o.before = append(o.before, o.bytes.Load())
	}
	return o.came.Write(p)
}

func (o *ordered) stream() io.Writer { return slowly{&o.bytes} }

// slowly is a slow writer, so that messages that overtake it show.
type slowly struct{ bytes *atomic.Int64 }

func (s slowly) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	s.bytes.Add(int64(len(p)))
	return len(p), nil
}

func pythonProgram(source string) sandbox.Cmd {
	return sandbox.Cmd{Python: &sandbox.PythonProgram{Name: "suite", Source: source}, Timeout: time.Minute}
}

// pythonChecks are about Python programs of wisbox's own.
var pythonChecks = []check{
	{"a python program gets the channel, the streams, the directory and the environment", func(t *testing.T, f *fixture) {
		f.must(t, "mkdir -p pydir")
		out := &bytes.Buffer{}
		cmd := pythonProgram(echoProgram)
		cmd.Control = &sandbox.Control{In: strings.NewReader(`{"say": "hi", "exit": 3}`), Out: out}
		cmd.Stdin, cmd.Env, cmd.Dir = strings.NewReader("input"), []string{"NAME=value"}, "pydir"
		o := f.run(t, cmd)
		assert.Equal(t, 3, o.ExitCode, o.err)
		assert.Equal(t, "said hi\n", o.out)
		assert.Equal(t, "warned\n", o.err)
		for _, want := range []string{`"calls": 1`, `"stdin": "input"`, `"env": "value"`, `"dir": "pydir"`} {
			assert.Contains(t, out.String(), want)
		}
	}},
	{"a python program without stdin has /dev/null", func(t *testing.T, f *fixture) {
		o := f.run(t, pythonProgram("def main(inp, out):\n    import os, sys\n    print(os.readlink('/proc/self/fd/0'), repr(sys.stdin.read()))\n"))
		assert.Equal(t, "/dev/null ''\n", o.out, o.err)
	}},
	{"python programs are fresh on every call", func(t *testing.T, f *fixture) {
		for range 3 {
			out := &bytes.Buffer{}
			cmd := pythonProgram(echoProgram)
			cmd.Control = &sandbox.Control{In: strings.NewReader(`{"say": 1}`), Out: out}
			assert.Equal(t, 0, f.run(t, cmd).ExitCode)
			assert.Contains(t, out.String(), `"calls": 1`)
		}
	}},
	{"a python program's channel is exact, both ways", func(t *testing.T, f *fixture) {
		data, out := noise(2<<20), &bytes.Buffer{}
		cmd := pythonProgram("def main(inp, out):\n    out.write(inp.read())\n")
		cmd.Control = &sandbox.Control{In: bytes.NewReader(data), Out: out}
		o := f.run(t, cmd)
		assert.Equal(t, 0, o.ExitCode, o.err)
		assert.True(t, bytes.Equal(data, out.Bytes()))
	}},
	{"a python program's message comes after what it wrote before", func(t *testing.T, f *fixture) {
		in, came := io.Pipe()
		defer in.Close()
		seen := &ordered{came: came}
		cmd := pythonProgram(orderProgram)
		cmd.Stdout, cmd.Stderr, cmd.Control = seen.stream(), seen.stream(), &sandbox.Control{In: in, Out: seen}
		res, err := f.box.Run(context.Background(), cmd)
		require.NoError(t, err)
		assert.Equal(t, 0, res.ExitCode)
		assert.Equal(t, []int64{0, 2, 600_004, 600_006}, seen.before)
	}},
	{"an exception in a python program is exit 1 with a traceback", func(t *testing.T, f *fixture) {
		o := f.run(t, pythonProgram("def main(inp, out):\n    raise ValueError('boom')\n"))
		assert.Equal(t, 1, o.ExitCode)
		assert.Contains(t, o.err, "ValueError: boom")
	}},
	{"a python program without a channel finds it at its end", func(t *testing.T, f *fixture) {
		o := f.run(t, pythonProgram("def main(inp, out):\n    print(inp.read())\n    out.write(b'x')\n"))
		assert.Equal(t, 0, o.ExitCode, o.err)
		assert.Equal(t, "b''\n", o.out)
	}},
	{"a python program may be long", func(t *testing.T, f *fixture) {
		source := strings.Repeat("# padding\n", 30_000) + "def main(inp, out):\n    print('end')\n"
		o := f.run(t, pythonProgram(source))
		assert.Equal(t, "end\n", o.out, o.err)
	}},
	{"time limits hold for python programs, and nothing outlives them", func(t *testing.T, f *fixture) {
		source := "import sys\nSURVIVOR = " + pyQuote(survivor.python) + "\ndef main(inp, out):\n    sys.argv = ['x', 'double', 'hang']\n    exec(SURVIVOR, {})\n"
		o := f.hangs(t, pythonProgram(source), "double")
		assert.Equal(t, sandbox.StatusTimedOut, o.Status)
		assert.Equal(t, "ready\n", o.out, o.err)
		f.released(t, "double")
	}},
	{"python programs can be started and interrupted", func(t *testing.T, f *fixture) {
		out := newWatcher()
		cmd := pythonProgram("import time\ndef main(inp, out):\n    try:\n        print('ready', flush=True); time.sleep(600)\n    except KeyboardInterrupt:\n        print('interrupted', flush=True)\n")
		cmd.Stdout = out
		p, err := f.box.Start(context.Background(), cmd)
		require.NoError(t, err)
		out.await(t, "ready")
		require.NoError(t, p.Signal("INT"))
		assert.Equal(t, 0, wait(t, p).ExitCode)
		assert.Contains(t, out.String(), "interrupted")
	}},
}

func pyQuote(s string) string { return `r'''` + s + `'''` }

// noPythonChecks replace pythonChecks if the image has no Python.
var noPythonChecks = []check{
	{"without python a python program is unsupported", func(t *testing.T, f *fixture) {
		_, err := f.box.Run(context.Background(), pythonProgram("def main(inp, out): pass"))
		assert.ErrorIs(t, err, sandbox.ErrUnsupported)
		_, err = f.box.Start(context.Background(), pythonProgram("def main(inp, out): pass"))
		assert.ErrorIs(t, err, sandbox.ErrUnsupported)
		assert.Equal(t, "on", f.must(t, "echo on"))
	}},
}
