package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// streamChecks are about input and output.
var streamChecks = []check{
	{"the two streams are apart and exact", func(t *testing.T, f *fixture) {
		o := f.bash(t, `printf 'out\n\n'; printf 'err' >&2`)
		assert.Equal(t, "out\n\n", o.out)
		assert.Equal(t, "err", o.err)
		assert.Equal(t, int64(5), o.Stdout.Bytes)
		assert.Equal(t, int64(3), o.Stderr.Bytes)
		assert.Empty(t, o.Stdout.Tail)
	}},
	{"no stdin is the end of file at once", func(t *testing.T, f *fixture) {
		o := f.run(t, sandbox.Cmd{Argv: []string{"cat"}, Timeout: prompt})
		assert.Equal(t, sandbox.StatusExited, o.Status)
		assert.Empty(t, o.out)
		assert.Equal(t, "/dev/null", f.must(t, "readlink /proc/self/fd/0"), "a program such as ripgrep would read a pipe")
	}},
	{"bytes go through as they are, many of them", func(t *testing.T, f *fixture) {
		data := noise(3 << 20)
		o := f.run(t, sandbox.Cmd{Argv: []string{"cat"}, Stdin: bytes.NewReader(data)})
		assert.True(t, o.out == string(data), "the output differs from the input")
		assert.Equal(t, int64(len(data)), o.Stdout.Bytes)
	}},
	{"reading and writing all three streams at once doesn't block", func(t *testing.T, f *fixture) {
		data := noise(1 << 20)
		o := f.run(t, sandbox.Cmd{Argv: []string{"tee", "/dev/stderr"}, Stdin: bytes.NewReader(data)})
		assert.True(t, o.out == string(data), "stdout differs from the input")
		assert.True(t, o.err == string(data), "stderr differs from the input")
	}},
	{"stdin that nobody reads is no matter", func(t *testing.T, f *fixture) {
		o := f.run(t, sandbox.Cmd{Argv: []string{"true"}, Stdin: bytes.NewReader(noise(1 << 20)), Timeout: prompt})
		assert.Equal(t, sandbox.StatusExited, o.Status)
		assert.Equal(t, 0, o.ExitCode)
	}},
	{"stdin that never ends doesn't hold the call", func(t *testing.T, f *fixture) {
		r, w := io.Pipe()
		defer w.Close()
		o := f.run(t, sandbox.Cmd{Argv: []string{"true"}, Stdin: r, Timeout: prompt})
		assert.Equal(t, sandbox.StatusExited, o.Status)
	}},
	{"streams without a writer are counted", func(t *testing.T, f *fixture) {
		res, err := f.box.Run(context.Background(), f.script("head -c 1000000 /dev/zero; head -c 7 /dev/zero >&2"))
		require.NoError(t, err)
		assert.Equal(t, int64(1_000_000), res.Stdout.Bytes)
		assert.Equal(t, int64(7), res.Stderr.Bytes)
	}},
	{"capture passes the first bytes on and keeps the last", func(t *testing.T, f *fixture) {
		cmd := f.script("seq 1 400000; seq 1 400000 >&2")
		cmd.Capture = &sandbox.Capture{Forward: 5000, Tail: 300}
		o, all := f.run(t, cmd), sequence(400_000)
		for name, s := range map[string]struct {
			head   string
			stream sandbox.Stream
		}{"stdout": {o.out, o.Stdout}, "stderr": {o.err, o.Stderr}} {
			assert.Equal(t, int64(len(all)), s.stream.Bytes, name)
			assert.Equal(t, all[:5000], s.head, name)
			assert.Equal(t, all[len(all)-300:], string(s.stream.Tail), name)
		}
	}},
	{"capture leaves what fits untouched and cuts from the next byte on", func(t *testing.T, f *fixture) {
		for n, tail := range map[int]string{0: "", 99: "", 100: "", 101: "a", 109: strings.Repeat("a", 9), 150: strings.Repeat("a", 10)} {
			cmd := f.script(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' a", n))
			cmd.Capture = &sandbox.Capture{Forward: 100, Tail: 10}
			o := f.run(t, cmd)
			assert.Equal(t, strings.Repeat("a", min(n, 100)), o.out)
			assert.Equal(t, int64(n), o.Stdout.Bytes)
			assert.Equal(t, tail, string(o.Stdout.Tail), "%d bytes", n)
		}
	}},
	{"a reader that is slow holds its own program only", func(t *testing.T, f *fixture) {
		gate := newGate()
		cmd := sandbox.Cmd{Argv: []string{"yes"}, Stdout: gate}
		p := f.start(t, cmd)
		<-gate.entered
		assert.Equal(t, "hi", f.must(t, "echo hi; head -c 2000000 /dev/zero >&2"))
		require.NoError(t, p.Kill())
		close(gate.open)
		wait(t, p)
	}},
	{"a private channel goes both ways and is exact", func(t *testing.T, f *fixture) {
		data, out := noise(2<<20), &bytes.Buffer{}
		cmd := f.script("echo public; cat <&3 >&4")
		cmd.Control = &sandbox.Control{In: bytes.NewReader(data), Out: out}
		o := f.run(t, cmd)
		assert.Equal(t, 0, o.ExitCode, o.err)
		assert.Equal(t, "public\n", o.out)
		assert.True(t, bytes.Equal(data, out.Bytes()), "the channel's output differs from its input")
	}},
	{"a private channel without input is at its end", func(t *testing.T, f *fixture) {
		out := &bytes.Buffer{}
		cmd := f.script("cat <&3 >&4; echo end >&4")
		cmd.Control = &sandbox.Control{Out: out}
		f.run(t, cmd)
		assert.Equal(t, "end\n", out.String())
	}},
	{"a private channel's input that never ends doesn't hold the call", func(t *testing.T, f *fixture) {
		r, w := io.Pipe()
		defer w.Close()
		cmd := f.script("echo done")
		cmd.Control, cmd.Timeout = &sandbox.Control{In: r, Out: io.Discard}, prompt
		assert.Equal(t, "done\n", f.run(t, cmd).out)
	}},
	{"capture doesn't touch the private channel", func(t *testing.T, f *fixture) {
		out := &bytes.Buffer{}
		cmd := f.script("seq 1 50000 >&4; seq 1 50000")
		cmd.Control, cmd.Capture = &sandbox.Control{Out: out}, &sandbox.Capture{Forward: 10, Tail: 10}
		o := f.run(t, cmd)
		assert.Equal(t, sequence(50_000), out.String())
		assert.Len(t, o.out, 10)
	}},
	{"without a private channel its descriptors are closed", func(t *testing.T, f *fixture) {
		o := f.run(t, f.does(descriptors))
		assert.Equal(t, "0\n1\n2\n", o.out)
	}},
}

// noise is reproducible random bytes.
func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

// sequence returns what seq 1 n prints.
func sequence(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// gate is a writer that blocks until the check opens it.
type gate struct {
	entered, open chan struct{}
	once          sync.Once
}

func newGate() *gate { return &gate{entered: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.entered) })
	<-g.open
	return len(p), nil
}
