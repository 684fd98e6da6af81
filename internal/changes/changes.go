// Package changes brings a session's changes back to the host: as a list, as a patch for git apply,
// as files in the mounted host folders, and as a branch.
//
// It trusts none of them: names, links and content come from programs. No host program runs on
// them, nothing outside of the folders is written, and nothing in a directory of a version control
// system (.git, .hg, see package leftout) is written or shown.
package changes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/byproduct"
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/snapshot"
)

// Limits bound the work of one call: 4 GiB of content read, and 5 minutes.
var Limits = budget.Limits{Out: 4 << 30, Memory: 64 << 20, Steps: budget.None, Time: 5 * time.Minute}

// A list has at most this many changes and bytes of paths.
const (
	maxListed = 10_000
	maxNames  = 1 << 20
)

// Status is the kind of a change.
type Status string

// The values of Status.
const (
	Added   Status = "added"
	Changed Status = "changed"
	Removed Status = "removed"
	Renamed Status = "renamed" // with unchanged content
)

// Change is one file or link that differs. Paths are in the workspace, as raw bytes: quote them for
// a terminal.
type Change struct {
	Path    string `json:"path"`
	From    string `json:"from,omitempty"` // its path before it was renamed
	Status  Status `json:"status"`
	OldMode string `json:"old_mode,omitempty"` // in git's form: 100644, 100755, 120000 for a link
	Mode    string `json:"mode,omitempty"`
	// The lines that a patch adds and removes, if they were requested; for a binary file only
	// Binary is set.
	AddedLines   int64 `json:"added_lines,omitempty"`
	RemovedLines int64 `json:"removed_lines,omitempty"`
	Binary       bool  `json:"binary,omitempty"`

	old, new *snapshot.Entry
}

// Diff is the difference between two states of a workspace.
type Diff struct {
	From    string   `json:"from"`         // a snapshot, or "given": the session's files when it opened
	To      string   `json:"to,omitempty"` // a snapshot; absent for the present workspace
	Changes []Change `json:"changes"`      // sorted by path; the first 10,000, or a MiB of paths
	More    int64    `json:"more_changes,omitempty"`
	// The sums of lines, if they were requested.
	AddedLines   int64 `json:"added_lines,omitempty"`
	RemovedLines int64 `json:"removed_lines,omitempty"`
	Hidden
}

// Hidden counts differences that are left out.
type Hidden struct {
	// Git counts those in the directories of version control systems (.git, .hg …), which are never
	// shown.
	Git int64 `json:"git_left_out,omitempty"`
	// Byproducts counts files that programs write by themselves, such as caches.
	Byproducts int64 `json:"byproducts_left_out,omitempty"`
	// Ignored counts files that the mounted .gitignore files ignore.
	Ignored int64 `json:"ignored_left_out,omitempty"`
}

// Options choose which changes count.
type Options struct {
	// All includes files that programs write by themselves, see package byproduct, and those that
	// Mounted ignores; Ignored includes only the latter.
	All, Ignored bool
	// Below limits the changes to those at or below that path of the workspace; "" means all.
	Below string
	// Mounted has the .gitignore files that count, as they were mounted: programs can't change them.
	// Nil means that none does.
	Mounted *snapshot.Tree
	// Applied is the comparison of what earlier calls of [Set.Apply] have written with the same new
	// state; nil if there were none.
	Applied *snapshot.Between
}

// Set has the differences of two snapshots that count.
type Set struct {
	between *snapshot.Between
	pairs   []pair
	diff    Diff
	all     []Change

	goneDirs []string
	newFiles map[string]bool // the files and links of the new state that differ
	newDirs  map[string]bool // the directories above them
}

// pair is a path with different entries.
type pair struct {
	snapshot.Pair
	// brought reports that an apply has written the entry was; nil means that it removed the path.
	brought bool
	was     *snapshot.Entry
}

// last returns the entry that the host has if nobody but wisbox changed it.
func (p *pair) last() *snapshot.Entry {
	if p.brought {
		return p.was
	}
	return p.Old
}

// Of selects from a comparison, which must stay open.
func Of(b *budget.Budget, between *snapshot.Between, opts Options) (*Set, error) {
	s := &Set{between: between, newFiles: map[string]bool{}, newDirs: map[string]bool{}}
	ignores := newIgnorer(b, opts.Mounted)
	for _, p := range allPairs(between, opts.Applied) {
		if p.New != nil {
			s.newFiles[p.Path] = true
			for dir := parentOf(p.Path); dir != "" && !s.newDirs[dir]; dir = parentOf(dir) {
				s.newDirs[dir] = true
			}
		}
		switch {
		case !below(p.Path, opts.Below):
		case leftout.VersionControl(p.Path):
			s.diff.Git++
		case !opts.All && byproduct.Is(p.Path):
			s.diff.Byproducts++
		default:
			if err := ignores.look(p, opts.All || opts.Ignored); err != nil {
				return nil, err
			}
			s.pairs = append(s.pairs, p)
		}
	}
	if err := ignores.leaveOut(s); err != nil {
		return nil, err
	}
	gone := between.GoneDirs
	if opts.Applied != nil {
		gone = slices.Concat(gone, opts.Applied.GoneDirs)
		slices.Sort(gone)
		gone = slices.Compact(gone)
	}
	for _, dir := range gone {
		if below(dir, opts.Below) && !leftout.VersionControl(dir) && (opts.All || !byproduct.Is(dir)) {
			s.goneDirs = append(s.goneDirs, dir)
		}
	}
	s.list()
	return s, nil
}

// allPairs returns the pairs of a comparison, with the entries that an apply has written.
func allPairs(between, applied *snapshot.Between) []pair {
	brought := map[string]snapshot.Pair{}
	if applied != nil {
		for _, p := range applied.Pairs {
			brought[p.Path] = p
		}
	}
	all := make([]pair, 0, len(between.Pairs))
	for _, p := range between.Pairs {
		one := pair{Pair: p, brought: applied != nil, was: p.New}
		if since, differs := brought[p.Path]; differs {
			one.was = since.Old
			delete(brought, p.Path)
		}
		all = append(all, one)
	}
	for _, since := range brought { // the session has undone its change
		all = append(all, pair{Pair: snapshot.Pair{Path: since.Path, Old: since.New, New: since.New}, brought: true, was: since.Old})
	}
	if len(brought) > 0 {
		slices.SortFunc(all, func(x, y pair) int { return cmp.Compare(x.Path, y.Path) })
	}
	return all
}

func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

func below(path, dir string) bool {
	return dir == "" || path == dir || strings.HasPrefix(path, dir+"/")
}

// list makes changes of the pairs: a removal and an addition with the same content become a rename.
func (s *Set) list() {
	removed := map[string][]int{} // content to pairs
	for i, p := range s.pairs {
		if old := p.last(); p.New == nil && old != nil && old.ContentID() != "" {
			removed[old.ContentID()] = append(removed[old.ContentID()], i)
		}
	}
	from, taken := map[int]int{}, map[int]bool{}
	for i, p := range s.pairs {
		if p.last() != nil || p.New == nil || p.New.ContentID() == "" {
			continue
		}
		if was := removed[p.New.ContentID()]; len(was) > 0 {
			from[i], taken[was[0]], removed[p.New.ContentID()] = was[0], true, was[1:]
		}
	}
	for i, p := range s.pairs {
		if taken[i] {
			continue
		}
		c := changeOf(p.Path, p.last(), p.New)
		if was, ok := from[i]; ok {
			c.Status, c.From, c.old = Renamed, s.pairs[was].Path, s.pairs[was].last()
			c.OldMode = modeOf(c.old)
		}
		s.all = append(s.all, c)
	}
}

func changeOf(path string, old, now *snapshot.Entry) Change {
	c := Change{Path: path, Status: Changed, OldMode: modeOf(old), Mode: modeOf(now), old: old, new: now}
	switch {
	case old == nil:
		c.Status = Added
	case now == nil:
		c.Status = Removed
	}
	return c
}

// modeOf returns git's mode of an entry; "" for nil.
func modeOf(e *snapshot.Entry) string {
	switch {
	case e == nil:
		return ""
	case e.Link:
		return "120000"
	case e.Exec:
		return "100755"
	}
	return "100644"
}

// Diff returns the list of the changes, with their lines if Patch was called before.
func (s *Set) Diff() *Diff {
	d := s.diff
	n, size := 0, 0
	for n < min(len(s.all), maxListed) && size < maxNames {
		size += len(s.all[n].Path) + len(s.all[n].From)
		n++
	}
	d.Changes, d.More = append([]Change{}, s.all[:n]...), int64(len(s.all)-n)
	for _, c := range s.all {
		d.AddedLines += c.AddedLines
		d.RemovedLines += c.RemovedLines
	}
	return &d
}
