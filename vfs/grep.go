package vfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/glob"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxMatches   = 1_000
	answerMemory = 4 << 20  // bytes of text in one answer
	foundMemory  = 16 << 20 // bytes of matches before pruning
)

type grepParams struct {
	Pattern    string `json:"pattern" jsonschema:"RE2 regular expression, matched against each line, whose end may be LF or CRLF; at most 1,000 characters"`
	Path       string `json:"path,omitempty" default:"/" jsonschema:"directory or file to search, relative to the workspace"`
	Glob       string `json:"glob,omitempty" jsonschema:"search only files whose path, relative to path, matches; as for the tool glob"`
	IgnoreCase bool   `json:"ignore_case,omitempty" default:"false" jsonschema:"match upper and lower case alike"`
	Before     int    `json:"before,omitempty" default:"0" min:"0" max:"100" jsonschema:"lines to show before each match"`
	After      int    `json:"after,omitempty" default:"0" min:"0" max:"100" jsonschema:"lines to show after each match"`
	MaxMatches int    `json:"max_matches,omitempty" default:"1000" min:"1" jsonschema:"at most 1000"`
}

// Grepping is the answer of grep.
type Grepping struct {
	Matches       []GrepMatch `json:"matches" jsonschema:"sorted by path and line"`
	Truncated     bool        `json:"truncated" jsonschema:"there are more matches, or the search met a limit: see notices"`
	FilesSearched int64       `json:"files_searched"`
	FilesSkipped  int64       `json:"files_skipped" jsonschema:"binary, unreadable or too large"`
	Notices       []string    `json:"notices,omitempty" jsonschema:"why it is truncated, or what of the pattern can't match"`
}

// GrepMatch is one line that matched.
type GrepMatch struct {
	Path       string   `json:"path"`
	LineNumber int      `json:"line_number" jsonschema:"from 1"`
	Line       string   `json:"line" jsonschema:"without its newline; cut at 2,000 characters"`
	Column     int      `json:"column" jsonschema:"of the first match in the line, in characters from 1"`
	Before     []string `json:"before,omitempty"`
	After      []string `json:"after,omitempty"`
}

// size is roughly the size of the match in an answer, without its path, which many matches share.
func (m *GrepMatch) size() int {
	n := jsonSize(m.Line) + 100
	for _, lines := range [][]string{m.Before, m.After} {
		for _, l := range lines {
			n += jsonSize(l) + 16
		}
	}
	return n
}

func (f *FS) grepTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "grep", Title: "Search in files", ReadOnly: true, Idempotent: true,
		Description: "Search the lines of text files for an RE2 regular expression. Matches are sorted by path. " +
			"Hidden files are searched; binary ones are skipped, links are not followed.",
	}, f.grep)
}

// grepQuery is the query of a search.
type grepQuery struct {
	pattern       *linePattern
	glob          *glob.Pattern // nil: all files
	paths         Grammar
	before, after int
	max           int
}

func (p grepParams) compile(paths Grammar) (*grepQuery, error) {
	q := &grepQuery{paths: paths, before: p.Before, after: p.After, max: min(p.MaxMatches, maxMatches)}
	var err error
	if p.Glob != "" {
		if q.glob, err = paths.compile(p.Glob); err != nil {
			return nil, in(err, "glob")
		}
	}
	q.pattern, err = compileLines(p.Pattern, p.IgnoreCase)
	return q, in(err, "pattern")
}

func (f *FS) grep(ctx context.Context, p grepParams) (*Grepping, error) {
	rel, err := f.opts.Paths.Parse(p.Path)
	if err != nil {
		return nil, in(err, "path")
	}
	query, err := p.compile(f.opts.Paths)
	if err != nil {
		return nil, err
	}
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	g := &grepping{query: query, dev: f.tree.Dev(), searches: make([]fileSearch, workers())}
	g.walk = &walk{visit: g.visit, denied: func() { g.skipped.Add(1) }, shared: true}
	b := budget.New(ctx, walkLimits)
	defer b.Close()
	g.walk.b = b
	for i := range g.searches {
		g.searches[i] = fileSearch{b: b, want: query, finder: lineFinder{p: query.pattern, cuts: &g.walk.cuts}}
	}
	if err := f.grepAt(ctx, g, rel); err != nil {
		return nil, in(fail(err, rel), "path")
	}
	return g.answer(rel), nil
}

// grepAt searches a directory or a file.
func (f *FS) grepAt(ctx context.Context, g *grepping, rel string) error {
	base, err := f.tree.OpenDir(rel)
	if errors.Is(err, unix.ENOTDIR) {
		return f.grepFile(ctx, g, rel)
	}
	if err != nil {
		return err
	}
	defer base.Close()
	if g.query.glob != nil {
		g.walk.descend = g.query.glob.Descend
	}
	return g.walk.run(g.walk.b, base)
}

func (f *FS) grepFile(ctx context.Context, g *grepping, rel string) error {
	h, err := patiently(ctx, func() (*beneath.Handle, error) { return f.tree.Open(rel) })
	if err != nil {
		return err
	}
	defer h.Close()
	if q := g.query; q.glob != nil && !q.glob.Match(rel[strings.LastIndexByte(rel, '/')+1:]) {
		return nil
	}
	g.file(0, int(h.Fd()), "")
	return g.walk.ended()
}

// grepping is a search in progress.
type grepping struct {
	query    *grepQuery
	dev      uint64
	walk     *walk
	searches []fileSearch // one for each worker
	searched atomic.Int64
	skipped  atomic.Int64
	last     atomic.Pointer[string] // paths after this one can't be part of the answer

	mu     sync.Mutex
	found  []GrepMatch
	memory int
}

func (g *grepping) visit(worker int, d *openDir, names []dirName) {
	for _, n := range names {
		if n.kind != unix.DT_REG || g.walk.b.Check() != nil {
			continue
		}
		path := join(d.path, n.name)
		if g.query.glob != nil && !g.query.glob.Match(path) {
			continue
		}
		if last := g.last.Load(); last != nil && path > *last {
			continue
		}
		g.open(worker, d, n.name, path)
	}
}

func (g *grepping) open(worker int, d *openDir, name, path string) {
	fd, err := beneath.OpenAt(d.fd, name, unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return // gone, or replaced by something that is not a file
	case err != nil:
		g.skipped.Add(1)
		return
	}
	g.file(worker, fd, path)
	_ = unix.Close(fd)
}

// file searches an open file. If the budget ends, the rest is left out.
func (g *grepping) file(worker, fd int, path string) {
	s := &g.searches[worker]
	how, err := s.search(fd, g.dev)
	switch {
	case how == searched:
		g.searched.Add(1)
	case how == skipped:
		g.skipped.Add(1)
	}
	if err != nil {
		g.walk.cuts.add(walkLimited)
	}
	if s.full {
		g.walk.cuts.add(answerFull)
	}
	if how == searched && len(s.matches) > 0 {
		g.add(path, s.matches, s.memory)
	} else {
		g.walk.b.Release(s.memory)
	}
}

func (g *grepping) add(path string, matches []GrepMatch, memory int) {
	for i := range matches {
		matches[i].Path = path
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found = append(g.found, matches...)
	g.memory += memory
	if g.memory > foundMemory || len(g.found) > 4*maxMatches {
		g.prune()
	}
}

// prune keeps only matches that can still be part of the answer: the first by path and line. Files
// after them are no longer searched.
func (g *grepping) prune() {
	slices.SortFunc(g.found, func(a, b GrepMatch) int {
		return cmp.Or(comparePaths(a.Path, b.Path), cmp.Compare(a.LineNumber, b.LineNumber))
	})
	keep, memory := 0, 0
	for keep < min(len(g.found), g.query.max) && memory+g.found[keep].size() <= answerMemory {
		memory += g.found[keep].size()
		keep++
	}
	if keep < len(g.found) && keep > 0 {
		g.walk.cuts.add(answerFull)
		last := g.found[keep-1].Path
		g.last.Store(&last)
		clear(g.found[keep:])
		g.found = g.found[:keep]
	}
	g.walk.b.Release(g.memory - memory)
	g.memory = memory
}

func (g *grepping) answer(rel string) *Grepping {
	g.prune()
	room := answerMemory
	for i, m := range g.found {
		path := rel
		if m.Path != "" {
			path = join(rel, m.Path)
		}
		g.found[i].Path = g.query.paths.Display(path)
		if room -= m.size() + jsonSize(g.found[i].Path); room < 0 && i > 0 {
			g.walk.cuts.add(answerFull)
			g.found = g.found[:i]
			break
		}
	}
	notices := g.walk.cuts.notices()
	truncated := notices != nil
	if g.query.pattern.broken {
		notices = append(notices, "the pattern has a line break, which no line has: lines are searched one at a time; search for one of the lines, and see the others with before and after, or use rg -U in shell_execute")
	}
	return &Grepping{
		Matches: append([]GrepMatch{}, g.found...), Truncated: truncated, Notices: notices,
		FilesSearched: g.searched.Load(), FilesSkipped: g.skipped.Load(),
	}
}

// Text groups the lines by file: 12: is a match, 12- a line around one.
func (g *Grepping) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s searched", count(len(g.Matches), "match", "matches"), count(int(g.FilesSearched), "file", "files"))
	if g.FilesSkipped > 0 {
		fmt.Fprintf(&b, " (%d skipped)", g.FilesSkipped)
	}
	b.WriteByte('\n')
	path := ""
	for _, m := range g.Matches {
		if m.Path != path {
			path = m.Path
			fmt.Fprintf(&b, "%s\n", path)
		}
		m.write(&b)
	}
	writeNotices(&b, g.Notices)
	return b.String()
}

func (m *GrepMatch) write(b *strings.Builder) {
	for i, line := range m.Before {
		fmt.Fprintf(b, "%4d- %s\n", m.LineNumber-len(m.Before)+i, line)
	}
	fmt.Fprintf(b, "%4d: %s\n", m.LineNumber, m.Line)
	for i, line := range m.After {
		fmt.Fprintf(b, "%4d- %s\n", m.LineNumber+1+i, line)
	}
}
