// Package snapshottest measures snapshots next to git and cp on the same tree.
// It is for benchmarks: it creates large trees and takes minutes.
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

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/snapshot"
)

// Row holds the times of one operation, ours and its peer's, with one sample per round.
type Row struct {
	What, PeerName string
	Ours, Peer     []time.Duration
	Bar            float64 // minimum speed-up of ours
}

// Result holds all measurements.
type Result struct {
	Rows []Row
	// Bytes of our store and of git's after gc, with Snapshots of 100 changed files.
	Store, Git int64
}

// Options set the size of the tree; a zero field means its default.
type Options struct {
	Files     int   // 20,000
	Bytes     int64 // 300 MB
	Snapshots int   // of 100 changed files each, 50
	Rounds    int   // 5
}

func (o *Options) withDefaults() Options {
	def := Options{Files: 20_000, Bytes: 300_000_000, Snapshots: 50, Rounds: 5}
	if o == nil {
		return def
	}
	out := *o
	for _, f := range []struct{ v, d *int }{{&out.Files, &def.Files}, {&out.Snapshots, &def.Snapshots}, {&out.Rounds, &def.Rounds}} {
		if *f.v == 0 {
			*f.v = *f.d
		}
	}
	if out.Bytes == 0 {
		out.Bytes = def.Bytes
	}
	return out
}

// Measure creates the same tree twice below dir, which should be empty, once for each side, and runs all measurements.
// The sides take turns, in alternating order, and all data is synced to the disk before each.
func Measure(ctx context.Context, dir string, opts *Options) (*Result, error) {
	m := &measure{ctx: ctx, dir: dir, Options: opts.withDefaults(), rng: rand.New(rand.NewPCG(1, 2))}
	defer func() { _ = m.closeStore() }()
	for i := range m.Files {
		if err := m.write(i); err != nil {
			return nil, err
		}
	}
	for _, step := range []func() error{m.first, m.hundred, m.restore, m.size} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &m.out, nil
}

type measure struct {
	Options
	ctx   context.Context
	dir   string
	store *snapshot.Store
	roots []*os.Root
	rng   *rand.Rand
	out   Result

	running  int64 // 1 if the snapshots' side must assume that a program runs
	activity int64
}

// sides are the two trees.
var sides = [2]string{"ours", "git"}

func (m *measure) path(side string, i int) string {
	return filepath.Join(m.dir, side, fmt.Sprintf("pkg%02d", i%40), fmt.Sprintf("mod%02d", i/40%25), fmt.Sprintf("file%05d.py", i))
}

// write writes text to file i: words as in source code, and some noise.
func (m *measure) write(i int) error {
	var b strings.Builder
	size := int(float64(m.Bytes) / float64(m.Files) * (0.2 + 1.6*m.rng.Float64()))
	for b.Len() < size {
		fmt.Fprintf(&b, "def function_%d(argument, other=%d):\n    return compute(%q, argument + %d)\n", m.rng.IntN(1e6), m.rng.IntN(100), words[m.rng.IntN(len(words))], m.rng.Int64())
	}
	for _, side := range sides {
		if err := os.MkdirAll(filepath.Dir(m.path(side, i)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(m.path(side, i), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var words = strings.Fields("snapshot workspace restore manifest compare session agent container kernel process limit stream budget output")

// change edits one line of n files, the same in both trees.
func (m *measure) change(n int) error {
	for range n {
		i, at, text := m.rng.IntN(m.Files), m.rng.Float64(), fmt.Sprintf("\nchanged = %d\n", m.rng.Int64())
		for _, side := range sides {
			b, err := os.ReadFile(m.path(side, i))
			if err != nil {
				return err
			}
			cut := int(at * float64(len(b)))
			if err := os.WriteFile(m.path(side, i), []byte(string(b[:cut])+text+string(b[cut:])), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// openStore opens an empty store.
func (m *measure) openStore() error {
	if err := errors.Join(m.closeStore(), os.RemoveAll(filepath.Join(m.dir, "store"))); err != nil {
		return err
	}
	var roots [3]*os.Root
	for i, name := range []string{"ours", "tmp", "store"} {
		path := filepath.Join(m.dir, name)
		err := os.MkdirAll(path, 0o700)
		if err == nil {
			roots[i], err = os.OpenRoot(path)
		}
		if err != nil {
			return err
		}
		m.roots = append(m.roots, roots[i])
	}
	var err error
	m.store, err = snapshot.New(&snapshot.Options{
		Workspace: roots[0], Tmp: roots[1], Store: roots[2],
		Activity: func(context.Context) (int64, error) { m.activity += m.running; return m.activity, nil },
	})
	return err
}

func (m *measure) closeStore() error {
	var err error
	if m.store != nil {
		err = m.store.Close()
	}
	for _, r := range m.roots {
		err = errors.Join(err, r.Close())
	}
	m.store, m.roots = nil, nil
	return err
}

func (m *measure) create() error {
	_, err := m.store.Create(m.ctx, nil)
	return err
}

func (m *measure) git(args ...string) error {
	base := []string{"--git-dir", filepath.Join(m.dir, "repo"), "--work-tree", filepath.Join(m.dir, "git"), "-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "gc.auto=0"}
	out, err := exec.CommandContext(m.ctx, "git", append(base, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (m *measure) initGit() error {
	return errors.Join(os.RemoveAll(filepath.Join(m.dir, "repo")), m.git("init", "-q"))
}

func (m *measure) commit() error {
	if err := m.git("add", "-A"); err != nil {
		return err
	}
	return m.git("commit", "-q", "-m", "x", "--allow-empty")
}

// compare times the two sides in turn. It calls prepare before each round.
func (m *measure) compare(what, peer string, bar float64, rounds int, prepare, ours, theirs func() error) error {
	row := Row{What: what, PeerName: peer, Bar: bar}
	for i := range rounds {
		if err := prepare(); err != nil {
			return err
		}
		turns := []func() error{
			func() error { return timed(&row.Ours, ours) },
			func() error { return timed(&row.Peer, theirs) },
		}
		if i%2 == 1 {
			turns[0], turns[1] = turns[1], turns[0]
		}
		if err := errors.Join(turns[0](), turns[1]()); err != nil {
			return err
		}
	}
	m.out.Rows = append(m.out.Rows, row)
	return nil
}

func timed(into *[]time.Duration, do func() error) error {
	unix.Sync()
	began := time.Now()
	err := do()
	*into = append(*into, time.Since(began))
	return err
}

const peerCommit = "`git add -A && git commit`"

func (m *measure) first() error {
	prepare := func() error { return errors.Join(m.openStore(), m.initGit()) }
	return m.compare("first snapshot", peerCommit, 5, m.Rounds, prepare, m.create, m.commit)
}

func (m *measure) hundred() error {
	return m.compare("snapshot after 100 files changed", peerCommit, 2, 3*m.Rounds, func() error { return m.change(100) }, m.create, m.commit)
}

func (m *measure) restore() error {
	info, err := m.store.Create(m.ctx, nil)
	if err = errors.Join(err, m.commit()); err != nil {
		return err
	}
	restore := func(what string, running int64) error {
		m.running = running
		return m.compare(what, "`git checkout`, `git clean`", 2, 2*m.Rounds, func() error { return m.change(1_000) },
			func() error { _, err := m.store.Restore(m.ctx, info.ID, nil); return err },
			func() error { return errors.Join(m.git("checkout", "-q", "--", "."), m.git("clean", "-fdq")) })
	}
	return errors.Join(
		restore("restore of 1,000 changed files", 0),
		restore("the same while a program runs, with a second look for what it wrote", 1))
}

func (m *measure) size() error {
	if err := errors.Join(m.openStore(), m.initGit()); err != nil {
		return err
	}
	for range m.Snapshots + 1 { // the first commit has the whole tree
		if err := errors.Join(m.create(), m.commit(), m.change(100)); err != nil {
			return err
		}
	}
	if err := m.git("gc", "-q", "--prune=now"); err != nil {
		return err
	}
	var err error
	if m.out.Store, err = used(filepath.Join(m.dir, "store")); err != nil {
		return err
	}
	m.out.Git, err = used(filepath.Join(m.dir, "repo"))
	return err
}

func used(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
