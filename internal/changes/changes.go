// Package changes brings a session's changes back to the host: as a list, as a patch for git apply,
// as files in the mounted host folders, and as a branch.
//
// It trusts none of them: names, links and content come from programs. No host program runs on
// them, nothing outside of the folders is written, and nothing in a .git directory is written or
// shown.
package changes

import (
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/byproduct"
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
	// Git counts differences in .git directories, which are never shown; Byproducts counts files
	// that programs write by themselves, such as caches, if they were left out.
	Git        int64 `json:"git_left_out,omitempty"`
	Byproducts int64 `json:"byproducts_left_out,omitempty"`
}

// Options choose which changes count.
type Options struct {
	// All includes files that programs write by themselves, see package byproduct.
	All bool
	// Below limits the changes to those at or below that path of the workspace; "" means all.
	Below string
}

// Set has the differences of two snapshots that count.
type Set struct {
	between  *snapshot.Between
	pairs    []snapshot.Pair
	goneDirs []string
	diff     Diff
	all      []Change
}

// Of selects from a comparison, which must stay open.
func Of(between *snapshot.Between, opts Options) *Set {
	s := &Set{between: between}
	for _, p := range between.Pairs {
		switch {
		case !below(p.Path, opts.Below):
		case inGit(p.Path):
			s.diff.Git++
		case !opts.All && byproduct.Is(p.Path):
			s.diff.Byproducts++
		default:
			s.pairs = append(s.pairs, p)
		}
	}
	for _, dir := range between.GoneDirs {
		if below(dir, opts.Below) && !inGit(dir) && (opts.All || !byproduct.Is(dir)) {
			s.goneDirs = append(s.goneDirs, dir)
		}
	}
	s.list()
	return s
}

func below(path, dir string) bool {
	return dir == "" || path == dir || strings.HasPrefix(path, dir+"/")
}

// inGit reports whether a path has a name that git, on any system, takes for its own directory.
func inGit(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		name, _, _ = strings.Cut(strings.ToLower(strings.Map(visible, name)), ":")
		if name = strings.TrimRight(name, ". "); name == ".git" || name == "git~1" {
			return true
		}
	}
	return false
}

// visible drops the characters that HFS+ on a Mac ignores in names.
func visible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// list makes changes of the pairs: a removal and an addition with the same content become a rename.
func (s *Set) list() {
	removed := map[string][]int{} // content to pairs
	for i, p := range s.pairs {
		if p.New == nil && p.Old.ContentID() != "" {
			removed[p.Old.ContentID()] = append(removed[p.Old.ContentID()], i)
		}
	}
	from, taken := map[int]int{}, map[int]bool{}
	for i, p := range s.pairs {
		if p.Old != nil || p.New.ContentID() == "" {
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
		c := changeOf(p)
		if was, ok := from[i]; ok {
			c.Status, c.From, c.old = Renamed, s.pairs[was].Path, s.pairs[was].Old
			c.OldMode = modeOf(c.old)
		}
		s.all = append(s.all, c)
	}
}

func changeOf(p snapshot.Pair) Change {
	c := Change{Path: p.Path, Status: Changed, OldMode: modeOf(p.Old), Mode: modeOf(p.New), old: p.Old, new: p.New}
	switch {
	case p.Old == nil:
		c.Status = Added
	case p.New == nil:
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
