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

	"github.com/wisbox/wisbox/sandbox"
)

// compare times two things in turn, so that a noisy moment hits both, and
// reports the medians in microseconds, and ratios of ours to theirs: of the
// medians, and of the fastest tenth, which other work on the machine moves less.
func compare(b *testing.B, ours, theirs func()) {
	var times [2][]float64
	for b.Loop() {
		for i, do := range []func(){ours, theirs} {
			begin := time.Now()
			do()
			times[i] = append(times[i], float64(time.Since(begin).Nanoseconds())/1e3)
		}
	}
	at := func(i int, q float64) float64 { return times[i][int(q*float64(len(times[i])))] }
	slices.Sort(times[0])
	slices.Sort(times[1])
	b.ReportMetric(at(0, 0.5), "ours-µs")
	b.ReportMetric(at(1, 0.5), "theirs-µs")
	b.ReportMetric(at(0, 0.5)/at(1, 0.5), "ratio")
	b.ReportMetric(at(0, 0.1)/at(1, 0.1), "ratio-p10")
}

func host(b *testing.B, argv ...string) func() {
	return func() { require.NoError(b, exec.Command(argv[0], argv[1:]...).Run()) }
}

func BenchmarkRunTrue(b *testing.B) {
	f := start(b)
	compare(b, func() {
		_, err := f.Run(context.Background(), sandbox.Cmd{Argv: []string{"/bin/true"}, Timeout: time.Minute})
		require.NoError(b, err)
	}, host(b, "/bin/true"))
}

func BenchmarkPing(b *testing.B) {
	f := start(b)
	compare(b, func() { require.NoError(b, f.Ping(context.Background())) }, host(b, "/bin/true"))
}

func BenchmarkPython(b *testing.B) {
	f := start(b)
	compare(b, func() {
		_, err := f.Run(context.Background(), sandbox.Cmd{
			Python:  &sandbox.PythonProgram{Name: "echo", Source: evalSource},
			Control: &sandbox.Control{In: strings.NewReader("1+1"), Out: io.Discard},
		})
		require.NoError(b, err)
	}, host(b, "/usr/bin/python3", "-I", "-c", "1+1"))
}

const evalSource = "def main(inp, out): out.write(repr(eval(inp.read())).encode())"
