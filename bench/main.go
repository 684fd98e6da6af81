// Command bench measures the costs of wisbox and prints Markdown tables. Each cost is next to the
// floor or the peer that was measured in the same run; since machines differ, the ratios count. It
// needs Podman and the image.
//
//	go run ./bench -o docs/benchmarks              # every table
//	go run ./bench -table programs -n 1000         # one, to standard output
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/timing"
	"github.com/wisbox/wisbox/podman"
)

// row is one line of a table: ours compared to a base, and the required ratio.
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

type samples = timing.Samples

// warm is the number of warm-up calls.
const warm = 5

// measure times n calls after the warm-up calls.
func measure(n int, do func() error) (samples, error) {
	out, err := timing.Alternate(warm, n, do)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// alternate times two functions in turn, so that a noisy moment affects both.
func alternate(n int, a, b func() error) (samples, samples, error) {
	out, err := timing.Alternate(warm, n, a, b)
	if err != nil {
		return nil, nil, err
	}
	return out[0], out[1], nil
}

// slower returns a row in which ours may cost at most bar times the base.
func slower(what, baseName string, ours, base samples, bar float64) row {
	r := float64(ours.Median()) / float64(base.Median())
	return row{what: what, baseName: baseName, ours: ours, base: base, ratio: r, bar: fmt.Sprintf("≤ %.1f×", bar), met: r <= bar}
}

// faster returns a row in which ours must be at least bar times as fast as the base.
func faster(what, baseName string, ours, base samples, bar float64) row {
	r := float64(base.Median()) / float64(ours.Median())
	return row{what: what, baseName: baseName, ours: ours, base: base, ratio: r, bar: fmt.Sprintf("≥ %.1f× faster", bar), met: r >= bar}
}

// unpromised returns a row without a requirement.
func unpromised(what, baseName string, ours, base samples) row {
	return row{what: what, baseName: baseName, ours: ours, base: base, ratio: float64(ours.Median()) / float64(base.Median()), bar: "—"}
}

// table is one page of results: its rows come in the order of its parts.
type table struct {
	name, title string
	about       string // the method, in whole sentences
	parts       []func(*bench, context.Context) error
	alone       bool // only made if it is named
}

// tables has all tables in the order in which they run.
var tables = []table{startTable, programsTable, mcpTable, pythonTable, evaluateTable, lispTable, filesTable, snapshotsTable, undoTable, promisesTable, wasmTable, rlmTable, grepTable, egressTable, serveTable, podsTable}

func main() {
	if len(os.Args) > 1 && os.Args[1] == clientRole {
		if err := egressClient(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	n := flag.Int("n", 200, "calls of each kind")
	sessions := flag.Int("sessions", 100, "sessions open at once")
	bin := flag.String("bin", "bin/wisbox", "the wisbox binary")
	name := flag.String("table", "", "the one table to make (default all but pods, which needs a Kubernetes)")
	dir := flag.String("o", "", "directory for the tables (default standard output)")
	flag.Parse()
	if err := run(*name, *dir, bench{n: *n, sessions: *sessions, bin: *bin}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(name, dir string, blank bench) error {
	ctx, found := context.Background(), false
	for _, t := range tables {
		if name != t.name && (name != "" || t.alone) {
			continue
		}
		found = true
		b := blank
		if err := b.make(ctx, t); err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
		if err := b.save(dir, t); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("unknown table %q", name)
	}
	return nil
}

// bench is one run of one table.
type bench struct {
	m           *wisbox.Manager
	service     podman.Service
	root        string // of the manager's state
	n, sessions int
	bin         string
	rows        []row
	notes       []string
}

// make runs the parts of a table, each table with a manager of its own.
func (b *bench) make(ctx context.Context, t table) error {
	dir, err := os.MkdirTemp("", "wisbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.root = dir + "/state"
	if b.m, err = wisbox.NewManager(ctx, &wisbox.Options{CacheDir: b.root}); err != nil {
		return err
	}
	defer b.m.Close()
	if b.service, err = b.m.Backend().(*podman.Backend).Service(ctx); err != nil {
		return err
	}
	for _, part := range t.parts {
		if err := part(b, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) save(dir string, t table) error {
	if dir == "" {
		b.print(os.Stdout, t)
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, t.name+".md"))
	if err != nil {
		return err
	}
	b.print(f, t)
	return f.Close()
}

func (b *bench) add(rows ...row) {
	for _, r := range rows {
		fmt.Fprintf(os.Stderr, "%-60s %8.3f ms  %6.1f×  %s\n", r.what, ms(r.ours.Median()), r.ratio, r.bar)
	}
	b.rows = append(b.rows, rows...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (b *bench) print(w io.Writer, t table) {
	fmt.Fprintf(w, "# %s\n\nMade by `make bench` on %s: %d processors, %s, Podman %s (%s, cgroup %s), kernel %s.\n",
		t.title, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), b.service.Version, b.service.Runtime, b.service.CgroupVersion, b.service.Kernel)
	fmt.Fprintf(w, "%s\nEach base was measured in the same run, in turn with ours where that can be.\n\n", t.about)
	fmt.Fprintln(w, "| what | ours, median (p99) ms | base | base, median (p99) ms | ratio | must reach | |\n|---|---|---|---|---|---|---|")
	for _, r := range b.rows {
		verdict := "**not met**"
		switch {
		case r.met:
			verdict = "met"
		case r.bar == "—":
			verdict = ""
		}
		fmt.Fprintf(w, "| %s | %.2f (%.2f) | %s | %.2f (%.2f) | %.1f | %s | %s |\n",
			r.what, ms(r.ours.Median()), ms(r.ours.At(0.99)), r.baseName, ms(r.base.Median()), ms(r.base.At(0.99)), r.ratio, r.bar, verdict)
	}
	fmt.Fprintln(w)
	for _, note := range b.notes {
		fmt.Fprintf(w, "- %s\n", note)
	}
}
