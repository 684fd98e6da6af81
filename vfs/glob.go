package vfs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/glob"

	"github.com/wisbox/wisbox/tool"
)

const (
	maxGlob    = 2_000    // matches of one answer
	globMemory = 16 << 20 // bytes of matching paths before pruning
)

type globParams struct {
	Pattern string `json:"pattern" jsonschema:"* stays in a segment, ** spans segments, {a,b}, [..], ?; without a / it matches the base name at any depth"`
	Path    string `json:"path,omitempty" default:"/" jsonschema:"directory to search, relative to the workspace"`
}

// Globbing is the answer of glob.
type Globbing struct {
	Path      string      `json:"path"`
	Matches   []GlobMatch `json:"matches" jsonschema:"sorted by the segments of their paths: a, a/b, a-b"`
	Truncated bool        `json:"truncated" jsonschema:"there are more than 2,000 matches, or the search met a limit: see notices"`
	Notices   []string    `json:"notices,omitempty" jsonschema:"why it is truncated"`
}

// GlobMatch is one path that matched. Links are not followed.
type GlobMatch struct {
	Path      string `json:"path"`
	Kind      Kind   `json:"kind" jsonschema:"file, directory, symlink or other"`
	SizeBytes int64  `json:"size_bytes" jsonschema:"of a file, else 0"`
	CreatedAt string `json:"created_at,omitempty" jsonschema:"of a file: when it was first seen"`
	UpdatedAt string `json:"updated_at"`
}

func (f *FS) globTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "glob", Title: "Find paths", ReadOnly: true, Idempotent: true,
		Description: "Find files and directories whose path matches a pattern, sorted by path, at most 2,000. Hidden ones are included, links are not followed.",
	}, f.glob)
}

func (f *FS) glob(ctx context.Context, p globParams) (*Globbing, error) {
	pattern, err := f.opts.Paths.compile(p.Pattern)
	if err != nil {
		return nil, in(err, "pattern")
	}
	base, err := f.reach(ctx, p.Path, "path", f.opts.Paths.Parse, f.tree.OpenDir)
	if err != nil {
		return nil, err
	}
	defer base.close()
	g := &globbing{pattern: pattern}
	w := &walk{descend: pattern.Descend, visit: g.visit}
	g.cuts = &w.cuts
	b := budget.New(ctx, walkLimits)
	defer b.Close()
	if err := w.run(b, base.Handle); err != nil {
		return nil, in(fail(err, base.rel), "path")
	}
	return f.globbed(base, g), nil
}

// globbing collects the matches.
type globbing struct {
	pattern *glob.Pattern
	cuts    *cuts

	mu     sync.Mutex
	found  []dirName // whole paths from the base
	memory int
}

func (g *globbing) visit(_ int, d *openDir, names []dirName) {
	var found []dirName
	memory := 0
	for i, n := range names {
		if i%16 == 0 && d.walk.b.Check() != nil { // braces cost up to 10 ms per name
			break
		}
		whole := n.name
		if !g.pattern.BaseOnly() {
			whole = join(d.path, n.name)
		}
		if g.pattern.Match(whole) {
			n.name = join(d.path, n.name)
			found = append(found, n)
			memory += len(n.name) + nameSize
		}
	}
	if found != nil {
		g.add(found, memory)
	}
}

func (g *globbing) add(found []dirName, memory int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found = append(g.found, found...)
	if g.memory += memory; g.memory > globMemory {
		g.prune()
	}
}

// prune keeps only paths that can still be part of the answer: the first ones.
func (g *globbing) prune() {
	slices.SortFunc(g.found, func(a, b dirName) int { return comparePaths(a.name, b.name) })
	g.memory = 0
	var kept []dirName
	for _, n := range g.found {
		if len(kept) == maxGlob || g.memory > answerMemory {
			g.cuts.add(answerFull)
			break
		}
		g.memory += len(n.name) + nameSize
		kept = append(kept, dirName{strings.Clone(n.name), n.kind})
	}
	g.found = kept
}

func (f *FS) globbed(base *reached, g *globbing) *Globbing {
	g.prune()
	out := &Globbing{Path: f.opts.Paths.Display(base.rel), Matches: make([]GlobMatch, 0, len(g.found))}
	look := &looker{f: f}
	defer look.close()
	room := answerMemory
	for _, n := range g.found {
		m := GlobMatch{Path: f.opts.Paths.Display(join(base.rel, n.name)), Kind: kindOfType(n.kind)}
		if room -= jsonSize(m.Path) + 100; room < 0 {
			g.cuts.add(answerFull)
			break
		}
		st, err := look.at(join(base.Path, n.name))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			f.describe(&m, join(base.Path, n.name), &st)
		}
		out.Matches = append(out.Matches, m)
	}
	out.Notices = g.cuts.notices()
	out.Truncated = out.Notices != nil
	return out
}

// looker stats many paths in order. It opens each directory only once.
type looker struct {
	f    *FS
	open *beneath.Handle
	dir  string // what open was opened as
}

func (l *looker) at(rel string) (st unix.Stat_t, err error) {
	dir, name := path.Split(rel)
	dir = strings.TrimSuffix(dir, "/")
	if l.open == nil || l.dir != dir {
		l.close()
		if l.open, err = l.f.tree.Look(dir); err != nil {
			return st, err
		}
		l.dir = dir
	}
	err = unix.Fstatat(int(l.open.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

func (l *looker) close() {
	if l.open != nil {
		_ = l.open.Close()
	}
	l.open = nil
}

func (f *FS) describe(m *GlobMatch, path string, st *unix.Stat_t) {
	m.Kind, m.UpdatedAt = kindOf(st), timestamp(modified(st))
	if m.Kind == File {
		m.SizeBytes, m.CreatedAt = st.Size, timestamp(f.versions.look(path, st).createdAt())
	}
}

// Text lists one path per line.
func (g *Globbing) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s\n", count(len(g.Matches), "match", "matches"), g.Path)
	for _, m := range g.Matches {
		b.WriteString(m.Path)
		if m.Kind == Directory {
			b.WriteByte('/')
		}
		b.WriteByte('\n')
	}
	writeNotices(&b, g.Notices)
	return b.String()
}
