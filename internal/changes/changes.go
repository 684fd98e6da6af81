// Package changes carries what a session has changed to where it came from: as a list,
// as a patch that git apply takes, and as files of the host's folders that were mounted.
//
// It trusts nothing that it carries: names, links and content are a program's. No program
// of the host runs on them, nothing is written outside of the folders, and nothing in
// a directory .git is written or shown.
package changes

import (
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/byproduct"
	"github.com/wisbox/wisbox/snapshot"
)

// Limits bound the work of one call: bytes of content that are read, 4 GiB, and time.
var Limits = budget.Limits{Out: 4 << 30, Memory: 64 << 20, Steps: budget.None, Time: 5 * time.Minute}

// A list names at most so many changes, and so many bytes of their paths.
const (
	maxListed = 10_000
	maxNames  = 1 << 20
)

// Status says what became of a path.
type Status string

// The values of Status.
const (
	Added   Status = "added"
	Changed Status = "changed"
	Removed Status = "removed"
	Renamed Status = "renamed" // with the content that it had
)

// Change is one file or link that differs. Paths are those of the workspace, as their bytes
// are: quote them for a terminal.
type Change struct {
	Path    string `json:"path"`
	From    string `json:"from,omitempty"` // its path before it was renamed
	Status  Status `json:"status"`
	OldMode string `json:"old_mode,omitempty"` // as git has it: 100644, 100755, 120000 for a link
	Mode    string `json:"mode,omitempty"`
	// The lines that a patch adds and removes; of a binary file Binary stands alone.
	// They are known where they were asked for.
	AddedLines   int64 `json:"added_lines,omitempty"`
	RemovedLines int64 `json:"removed_lines,omitempty"`
	Binary       bool  `json:"binary,omitempty"`

	old, new *snapshot.Entry
}

// Diff is what differs between two states of a workspace.
type Diff struct {
	From    string   `json:"from"`         // a snapshot, or "given": what the session was given when it opened
	To      string   `json:"to,omitempty"` // a snapshot; absent: the workspace as it is
	Changes []Change `json:"changes"`      // sorted by path, the first 10,000, or MiB of paths
	More    int64    `json:"more_changes,omitempty"`
	// The lines of all together, where they were asked for.
	AddedLines   int64 `json:"added_lines,omitempty"`
	RemovedLines int64 `json:"removed_lines,omitempty"`
	// Git counts what differs in directories .git, which is never shown; Byproducts what
	// programs write by themselves, as caches, and was left out.
	Git        int64 `json:"git_left_out,omitempty"`
	Byproducts int64 `json:"byproducts_left_out,omitempty"`
}

// Options choose what counts as a change.
type Options struct {
	// All counts what programs write by themselves too, see package byproduct.
	All bool
	// Below leaves only what is at or below that path of the workspace; "" is all.
	Below string
}

// Set is what two snapshots differ in, as far as it counts.
type Set struct {
	between  *snapshot.Between
	pairs    []snapshot.Pair
	goneDirs []string
	diff     Diff
	all      []Change
}

// Of chooses from a comparison, which must stay open.
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

// inGit reports whether any name of a path is one that git, on any system, takes for its own
// directory.
func inGit(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		name, _, _ = strings.Cut(strings.ToLower(name), ":")
		if name = strings.TrimRight(name, ". "); name == ".git" || name == "git~1" {
			return true
		}
	}
	return false
}

// list makes changes of the pairs: what was removed here and added there with the same
// content is a rename.
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

// modeOf is git's mode of an entry, "" of none.
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

// Diff is the list of the changes, with their lines if Patch was called before.
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
