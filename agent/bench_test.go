package agent_test

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// measure reports the median and the 99th percentile of one call in microseconds.
func measure(b *testing.B, call func()) {
	call()
	var times []time.Duration
	for b.Loop() {
		begin := time.Now()
		call()
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs-median")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs-p99")
}

func BenchmarkRunTrue(b *testing.B) {
	b.Run("host", func(b *testing.B) {
		measure(b, func() { require.NoError(b, exec.Command("/bin/true").Run()) })
	})
	f := start(b, agent.Options{})
	b.Run("agent", func(b *testing.B) {
		measure(b, func() {
			_, err := f.Run(context.Background(), sandbox.Cmd{Argv: []string{"/bin/true"}, Timeout: time.Minute})
			require.NoError(b, err)
		})
	})
	b.Run("ping", func(b *testing.B) {
		measure(b, func() { require.NoError(b, f.Ping(context.Background())) })
	})
}

func BenchmarkPython(b *testing.B) {
	b.Run("host", func(b *testing.B) {
		measure(b, func() { require.NoError(b, exec.Command("/usr/bin/python3", "-I", "-c", "1+1").Run()) })
	})
	f := start(b, agent.Options{})
	b.Run("agent", func(b *testing.B) {
		measure(b, func() {
			_, err := f.Run(context.Background(), sandbox.Cmd{
				Python:  &sandbox.PythonProgram{Name: "echo", Source: "def main(inp, out): out.write(repr(eval(inp.read())).encode())"},
				Control: &sandbox.Control{In: strings.NewReader("1+1"), Out: io.Discard},
			})
			require.NoError(b, err)
		})
	})
}
