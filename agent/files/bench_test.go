package files_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/sandbox"
)

// compare times two things in turn and reports the medians and their ratio.
func compare(b *testing.B, ours, theirs func()) {
	var times [2][]float64
	for b.Loop() {
		for i, do := range []func(){ours, theirs} {
			begin := time.Now()
			do()
			times[i] = append(times[i], float64(time.Since(begin).Nanoseconds())/1e3)
		}
	}
	median := func(i int) float64 { slices.Sort(times[i]); return times[i][len(times[i])/2] }
	b.ReportMetric(median(0), "ours-µs")
	b.ReportMetric(median(1), "theirs-µs")
	b.ReportMetric(median(0)/median(1), "ratio")
}

func run(b *testing.B, argv ...string) func() {
	return func() { require.NoError(b, exec.Command(argv[0], argv[1:]...).Run()) }
}

// BenchmarkStat against a fork and exec on the host.
func BenchmarkStat(b *testing.B) {
	f := start(b)
	compare(b, func() {
		_, err := f.Stat(context.Background(), f.dir, sandbox.StatOptions{})
		require.NoError(b, err)
	}, run(b, "/bin/true"))
}

// BenchmarkStatByANewProcess measures an operation without a waiting process.
func BenchmarkStatByANewProcess(b *testing.B) {
	f := start(b)
	compare(b, func() {
		fresh := files.New(f.conn)
		_, err := fresh.Stat(context.Background(), f.dir, sandbox.StatOptions{})
		require.NoError(b, err)
		require.NoError(b, fresh.Close())
	}, run(b, "/bin/true"))
}

const benched = 256 << 20

// BenchmarkRead against cat to a pipe.
func BenchmarkRead(b *testing.B) {
	f := start(b)
	path := f.dir + "/f"
	require.NoError(b, f.Write(context.Background(), path, io.LimitReader(zeros{}, benched), sandbox.WriteOptions{}))
	compare(b, func() {
		r, err := f.Open(context.Background(), path, sandbox.OpenOptions{})
		require.NoError(b, err)
		n, err := io.Copy(io.Discard, r)
		require.NoError(b, err)
		require.EqualValues(b, benched, n)
		require.NoError(b, r.Close())
	}, run(b, "sh", "-c", "cat "+path+" | wc -c"))
}

// BenchmarkWrite against cp.
func BenchmarkWrite(b *testing.B) {
	f := start(b)
	source := f.dir + "/f"
	require.NoError(b, f.Write(context.Background(), source, io.LimitReader(zeros{}, benched), sandbox.WriteOptions{}))
	compare(b, func() {
		r, err := os.Open(source)
		require.NoError(b, err)
		defer r.Close()
		require.NoError(b, f.Write(context.Background(), f.dir+"/g", r, sandbox.WriteOptions{}))
	}, run(b, "cp", source, f.dir+"/h"))
}

// BenchmarkCat measures the cost of a program's output.
func BenchmarkCat(b *testing.B) {
	f := start(b)
	path := f.dir + "/f"
	require.NoError(b, f.Write(context.Background(), path, io.LimitReader(zeros{}, benched), sandbox.WriteOptions{}))
	compare(b, func() {
		_, err := f.conn.Run(context.Background(), sandbox.Cmd{Argv: []string{"cat", path}, Stdout: io.Discard})
		require.NoError(b, err)
	}, run(b, "sh", "-c", "cat "+path+" | wc -c"))
}
