// Command bench measures what wisbox costs, next to the floor or the peer that
// was measured in the same run, and prints a Markdown table. Machines differ:
// the ratios count. It needs Podman and the image.
//
//	go run ./bench -n 200 -o docs/benchmarks/programs.md
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/podman"
)

// row is one line of the table: ours against a base, and what must be reached.
type row struct {
	what       string
	ours, base samples
	baseName   string
	bar        string
	// ratio of medians: ours/base when slower is worse, base/ours when we claim
	// to be faster.
	ratio float64
	met   bool
}

type samples []time.Duration

func (s samples) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (s samples) median() time.Duration { return s.at(0.5) }

// measure times n calls after a few that warm up.
func measure(n int, do func() error) (samples, error) {
	const warm = 5
	out := make(samples, 0, n)
	for i := range n + warm {
		began := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		if i >= warm {
			out = append(out, time.Since(began))
		}
	}
	return out, nil
}

// alternate times two things in turn, so that a noisy moment hits both.
func alternate(n int, a, b func() error) (samples, samples, error) {
	var as, bs samples
	for i := range n + 5 {
		for _, one := range []struct {
			do  func() error
			out *samples
		}{{a, &as}, {b, &bs}} {
			began := time.Now()
			if err := one.do(); err != nil {
				return nil, nil, err
			}
			if i >= 5 {
				*one.out = append(*one.out, time.Since(began))
			}
		}
	}
	return as, bs, nil
}

// slower is a row where ours may cost at most bar times the base.
func slower(what, baseName string, ours, base samples, bar float64) row {
	r := float64(ours.median()) / float64(base.median())
	return row{what: what, baseName: baseName, ours: ours, base: base, ratio: r, bar: fmt.Sprintf("≤ %.1f×", bar), met: r <= bar}
}

// faster is a row where ours must be at least bar times as fast as the base.
func faster(what, baseName string, ours, base samples, bar float64) row {
	r := float64(base.median()) / float64(ours.median())
	return row{what: what, baseName: baseName, ours: ours, base: base, ratio: r, bar: fmt.Sprintf("≥ %.1f× faster", bar), met: r >= bar}
}

func main() {
	n := flag.Int("n", 200, "calls of each kind")
	sessions := flag.Int("sessions", 100, "sessions open at once")
	bin := flag.String("bin", "bin/wisbox", "the wisbox binary")
	out := flag.String("o", "", "file for the table (default stdout)")
	flag.Parse()
	if err := run(*n, *sessions, *bin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(n, sessions int, bin, out string) error {
	ctx := context.Background()
	root, err := os.MkdirTemp("", "wisbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	m, err := wisbox.NewManager(ctx, &wisbox.Options{CacheDir: root + "/state"})
	if err != nil {
		return err
	}
	defer m.Close()
	b := &bench{m: m, n: n, sessions: sessions, bin: bin, root: root + "/state"}
	if b.service, err = m.Backend().(*podman.Backend).Service(ctx); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{b.programs, b.evaluations, b.opening, b.parallel, b.commandLine, b.many} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	w := io.Writer(os.Stdout)
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer f.Close()
		w = f
	}
	b.print(w)
	return nil
}

// bench is one run: its rows come in the order of its parts.
type bench struct {
	m           *wisbox.Manager
	service     podman.Service
	root        string
	n, sessions int
	bin         string
	rows        []row
	notes       []string
}

func (b *bench) add(rows ...row) {
	for _, r := range rows {
		fmt.Fprintf(os.Stderr, "%-60s %8.3f ms  %6.1f×  %s\n", r.what, ms(r.ours.median()), r.ratio, r.bar)
	}
	b.rows = append(b.rows, rows...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (b *bench) print(w io.Writer) {
	fmt.Fprintf(w, "# What programs cost\n\nMade by `make bench` on %s: %d processors, %s, Podman %s (%s, cgroup %s), kernel %s.\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), b.service.Version, b.service.Runtime, b.service.CgroupVersion, b.service.Kernel)
	fmt.Fprintf(w, "Medians (and p99) of %d calls each, ours with all controls and the log on; each base was measured in the same run, in turn.\nThe bases are at their best: warm caches, the interpreter itself and no shim, a service whose `exit_command_delay` is 1 s.\n\n", b.n)
	fmt.Fprintln(w, "| what | ours, median (p99) ms | base | base, median (p99) ms | ratio | must reach | |\n|---|---|---|---|---|---|---|")
	for _, r := range b.rows {
		verdict := "met"
		if !r.met {
			verdict = "**not met**"
		}
		fmt.Fprintf(w, "| %s | %.2f (%.2f) | %s | %.2f (%.2f) | %.1f | %s | %s |\n",
			r.what, ms(r.ours.median()), ms(r.ours.at(0.99)), r.baseName, ms(r.base.median()), ms(r.base.at(0.99)), r.ratio, r.bar, verdict)
	}
	fmt.Fprintln(w)
	for _, note := range b.notes {
		fmt.Fprintf(w, "- %s\n", note)
	}
}
