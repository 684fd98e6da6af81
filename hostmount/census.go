package hostmount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/tool"
)

// weight is the size of a folder of a source.
type weight struct{ bytes, entries int64 }

// census measures the folders of a source, down to a few levels.
type census struct {
	folders map[string]*weight // by path below the source
	total   weight
	ends    time.Time
}

const (
	censusLevels  = 3
	censusEntries = 500_000
	censusTime    = 3 * time.Second
	namedFolders  = 3
	largePart     = 10 // a folder with less than this part of all isn't large
)

// errCounted ends a census that takes too long: links that are followed may multiply without an end.
var errCounted = errors.New("enough is counted")

func (c *census) add(rel string, it *item) error {
	c.total.entries++
	c.total.bytes += it.size
	at := 0
	for range censusLevels {
		i := strings.IndexByte(rel[at:], '/')
		end := at + i
		if i < 0 {
			if !it.dir {
				break
			}
			end = len(rel)
		}
		w := c.folders[rel[:end]]
		if w == nil {
			w = &weight{}
			c.folders[rel[:end]] = w
		}
		w.entries++
		w.bytes += it.size
		if i < 0 {
			break
		}
		at = end + 1
	}
	if c.total.entries >= censusEntries || c.total.entries%1024 == 0 && time.Now().After(c.ends) {
		return errCounted
	}
	return nil
}

// explain adds to an error about a limit which folders of the mount are large, and an exclude= with which
// it would fit.
func (p *plan) explain(ctx context.Context, err error, limit weight) error {
	e := tool.AsError(err)
	c := &census{folders: map[string]*weight{}, ends: time.Now().Add(censusTime)}
	counting := &plan{mount: p.mount, at: p.at, src: p.src, filter: p.filter, budget: &budget{}, census: c, roots: p.roots, firsts: map[uint64]*item{}}
	failed := counting.walk(ctx)
	closePlans(counting.parts)
	if failed != nil && !errors.Is(failed, errCounted) || p.src.file != "" {
		return err
	}
	about := ""
	if errors.Is(failed, errCounted) {
		about = "at least "
	}
	large, fits := c.largest(limit)
	said := *e
	said.Message += fmt.Sprintf("; it has %s%d files and directories with %s", about, c.total.entries, units.BytesSize(float64(c.total.bytes)))
	if len(large) > 0 {
		said.Message += ", most in " + strings.Join(large, ", ")
	}
	if fits != "" {
		said.Message += "; it fits with " + fits
	}
	return &said
}

// largest describes the largest folders, and returns the options with which the rest fits into a limit.
func (c *census) largest(limit weight) (large []string, fits string) {
	by := func(w weight) int64 { // which limit it is about
		if limit.entries > 0 {
			return w.entries
		}
		return w.bytes
	}
	var tops []string
	for dir := range c.folders {
		if !strings.Contains(dir, "/") {
			tops = append(tops, c.innermost(dir, by))
		}
	}
	slices.SortFunc(tops, func(a, b string) int {
		return cmp.Or(cmp.Compare(by(*c.folders[b]), by(*c.folders[a])), cmp.Compare(a, b))
	})
	left, excludes, found := by(c.total), "", false
	for i, dir := range tops {
		w := c.folders[dir]
		if i < namedFolders {
			large = append(large, fmt.Sprintf("%s (%d, %s)", Entry{Path: dir}, w.entries, units.BytesSize(float64(w.bytes))))
		}
		if found || !plainGlob().MatchString(dir) || i >= namedFolders || by(*w)*largePart < by(c.total) {
			continue
		}
		excludes += ",exclude=" + dir
		left -= by(*w)
		found = left <= by(limit)
	}
	if !found {
		return large, ""
	}
	return large, strings.TrimPrefix(excludes, ",")
}

// innermost follows a folder down to the one that has nearly all of it.
func (c *census) innermost(dir string, by func(weight) int64) string {
	for !leftout.VersionControl(dir) { // which is left out as a whole
		next := ""
		for below, w := range maps.All(c.folders) {
			if parent(below) == dir && by(*w)*10 >= by(*c.folders[dir])*9 {
				next = below
			}
		}
		if next == "" {
			return dir
		}
		dir = next
	}
	return dir
}

func plainGlob() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._@+-][A-Za-z0-9._@+/ -]*$`) }
