// Package snapshottest measures snapshots next to git and cp on the same tree.
// It is for benchmarks: it makes a large tree and takes a minute.
package snapshottest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/wisbox/wisbox/snapshot"
)

// Row is one measure of ours and of its peer, in seconds or bytes.
type Row struct {
	What       string
	Ours, Peer float64
	PeerName   string
	Unit       string
	// Bar is what Peer/Ours must reach.
	Bar  float64
	Note string
}

// Ratio is how many times better ours is.
func (r Row) Ratio() float64 { return r.Peer / r.Ours }

// Met says that the bar was reached.
func (r Row) Met() bool { return r.Ratio() >= r.Bar }

// Options say how large the tree is; a zero field means its default.
type Options struct {
	Files     int   // 20,000
	Bytes     int64 // 300 MB
	Snapshots int   // of 100 changed files each, 50
}

// Measure makes a tree below dir, which should be empty, and runs all measures.
func Measure(ctx context.Context, dir string, opts *Options) ([]Row, error) {
	m := &measure{ctx: ctx, dir: dir, Options: Options{Files: 20_000, Bytes: 300_000_000, Snapshots: 50}}
	if opts != nil {
		m.Options = *opts
	}
	if err := m.setUp(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{m.first, m.hundred, m.restore, m.size, m.clone} {
		if err := step(); err != nil {
			return m.rows, errors.Join(err, m.store.Close())
		}
	}
	return m.rows, m.store.Close()
}

type measure struct {
	Options
	ctx   context.Context
	dir   string
	store *snapshot.Store
	rng   *rand.Rand
	rows  []Row
}

func (m *measure) setUp() error {
	m.rng = rand.New(rand.NewPCG(1, 2))
	for _, d := range []string{"ws", "tmp", "store", "ws2", "tmp2", "store2"} {
		if err := os.Mkdir(filepath.Join(m.dir, d), 0o700); err != nil {
			return err
		}
	}
	for i := range m.Files {
		if err := m.write(i); err != nil {
			return err
		}
	}
	var err error
	if m.store, err = m.open(""); err != nil {
		return err
	}
	return m.git("init", "-q")
}

func (m *measure) open(suffix string) (*snapshot.Store, error) {
	var roots [3]*os.Root
	for i, d := range []string{"ws", "tmp", "store"} {
		r, err := os.OpenRoot(filepath.Join(m.dir, d+suffix))
		if err != nil {
			return nil, err
		}
		roots[i] = r
	}
	return snapshot.New(&snapshot.Options{Workspace: roots[0], Tmp: roots[1], Store: roots[2]})
}

func (m *measure) path(i int) string {
	return filepath.Join(m.dir, "ws", fmt.Sprintf("pkg%02d", i%40), fmt.Sprintf("mod%02d", i/40%25), fmt.Sprintf("file%05d.py", i))
}

// write gives file i new text: words, as sources have them, and some noise.
func (m *measure) write(i int) error {
	if err := os.MkdirAll(filepath.Dir(m.path(i)), 0o755); err != nil {
		return err
	}
	var b strings.Builder
	size := int(float64(m.Bytes) / float64(m.Files) * (0.2 + 1.6*m.rng.Float64()))
	for b.Len() < size {
		fmt.Fprintf(&b, "def function_%d(argument, other=%d):\n    return compute(%q, argument + %d)\n", m.rng.IntN(1e6), m.rng.IntN(100), words[m.rng.IntN(len(words))], m.rng.Int64())
	}
	return os.WriteFile(m.path(i), []byte(b.String()), 0o644)
}

var words = strings.Fields("snapshot workspace restore manifest compare session agent container kernel process limit stream budget output")

// change edits one line of n files.
func (m *measure) change(n int) error {
	for range n {
		p := m.path(m.rng.IntN(m.Files))
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		at := m.rng.IntN(len(b))
		text := string(b[:at]) + fmt.Sprintf("\nchanged = %d\n", m.rng.Int64()) + string(b[at:])
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (m *measure) git(args ...string) error {
	git := filepath.Join(m.dir, "git")
	base := []string{"--git-dir", git, "--work-tree", filepath.Join(m.dir, "ws"), "-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "gc.auto=0"}
	out, err := exec.CommandContext(m.ctx, "git", append(base, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (m *measure) commit() error {
	if err := m.git("add", "-A"); err != nil {
		return err
	}
	return m.git("commit", "-q", "-m", "x", "--allow-empty")
}

func (m *measure) create() (snapshot.Info, error) { return m.store.Create(m.ctx, nil) }

func timed(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return time.Since(began).Seconds(), err
}

func (m *measure) compare(what, peer string, bar float64, ours, theirs func() error) error {
	a, err := timed(ours)
	if err != nil {
		return err
	}
	b, err := timed(theirs)
	m.rows = append(m.rows, Row{What: what, Ours: a, Peer: b, PeerName: peer, Unit: "s", Bar: bar})
	return err
}

func (m *measure) first() error {
	return m.compare("first snapshot", "git add -A, commit", 5, func() error { _, err := m.create(); return err }, m.commit)
}

// hundred takes the median of five, because it is short.
func (m *measure) hundred() error {
	var ours, theirs []float64
	for range 5 {
		if err := m.change(100); err != nil {
			return err
		}
		a, err := timed(func() error { _, err := m.create(); return err })
		if err != nil {
			return err
		}
		b, err := timed(m.commit)
		if err != nil {
			return err
		}
		ours, theirs = append(ours, a), append(theirs, b)
	}
	m.rows = append(m.rows, Row{What: "snapshot after 100 files changed", Ours: median(ours), Peer: median(theirs), PeerName: "git add -A, commit", Unit: "s", Bar: 2})
	return nil
}

func (m *measure) restore() error {
	info, err := m.create()
	if err != nil {
		return err
	}
	if err := m.commit(); err != nil {
		return err
	}
	if err := m.change(1_000); err != nil {
		return err
	}
	a, err := timed(func() error { _, err := m.store.Restore(m.ctx, info.ID, nil); return err })
	if err != nil {
		return err
	}
	if err := errors.Join(m.git("reset", "-q"), m.change(1_000)); err != nil {
		return err
	}
	b, err := timed(func() error { return errors.Join(m.git("checkout", "-q", "--", "."), m.git("clean", "-fdq")) })
	m.rows = append(m.rows, Row{What: "restore of 1,000 changed files", Ours: a, Peer: b, PeerName: "git checkout, clean", Unit: "s", Bar: 2})
	return err
}

func (m *measure) size() error {
	for range m.Snapshots {
		if err := m.change(100); err != nil {
			return err
		}
		if _, err := m.create(); err != nil {
			return err
		}
		if err := m.commit(); err != nil {
			return err
		}
	}
	if err := m.git("gc", "-q", "--prune=now"); err != nil {
		return err
	}
	ours, err := used(filepath.Join(m.dir, "store"))
	if err != nil {
		return err
	}
	theirs, err := used(filepath.Join(m.dir, "git"))
	m.rows = append(m.rows, Row{What: fmt.Sprintf("store after %d snapshots of 100 changed files", m.Snapshots), Ours: ours / 1e6, Peer: theirs / 1e6, PeerName: "git after gc", Unit: "MB", Bar: 1 / 1.5})
	return err
}

func used(dir string) (float64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return float64(total), err
}

// clone counts the snapshot that it is made from.
func (m *measure) clone() error {
	dst, err := m.open("2")
	if err != nil {
		return err
	}
	err = m.compare("clone of the workspace", "cp -a", 1, func() error {
		info, err := m.create()
		if err != nil {
			return err
		}
		_, err = m.store.CloneTo(m.ctx, info.ID, dst)
		return err
	}, func() error {
		return exec.CommandContext(m.ctx, "cp", "-a", filepath.Join(m.dir, "ws"), filepath.Join(m.dir, "ws3")).Run()
	})
	m.rows[len(m.rows)-1].Note = "2× where the file system has reflinks; else 1×"
	return errors.Join(err, dst.Close())
}

func median(v []float64) float64 {
	best := append([]float64(nil), v...)
	for i := range best {
		for j := i; j > 0 && best[j] < best[j-1]; j-- {
			best[j], best[j-1] = best[j-1], best[j]
		}
	}
	return best[len(best)/2]
}
