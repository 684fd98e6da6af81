package vfs

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Paths lists the files below a directory, at most max, sorted and relative to the workspace. A
// link counts as a file unless it leads to a directory; Paths follows no links below path and opens
// no files.
func (f *FS) Paths(ctx context.Context, path string, max int) ([]string, error) {
	base, err := f.reach(ctx, path, "path", f.opts.Paths.Parse, f.tree.OpenDir)
	if err != nil {
		return nil, err
	}
	defer base.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var found []string
	var full atomic.Bool
	w := &walk{visit: func(_ int, d *openDir, names []dirName) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range names {
			if n.kind == unix.DT_DIR || n.kind == unix.DT_LNK && f.leadsToDir(join(base.Path, join(d.path, n.name))) {
				continue
			}
			if len(found) == max {
				full.Store(true)
				cancel()
				return
			}
			found = append(found, join(base.rel, join(d.path, n.name)))
		}
	}}
	b := budget.New(ctx, walkLimits)
	defer b.Close()
	err = w.run(b, base.Handle)
	switch {
	case full.Load():
		return nil, tool.Errorf(tool.TooLarge, "the directory has more than %d files; name a subdirectory", max).In("path")
	case err != nil:
		return nil, in(fail(err, base.rel), "path")
	case w.cuts.notices() != nil:
		return nil, tool.Errorf(tool.Limit, "the directory is too large to list: %s; name a subdirectory", w.cuts.notices()[0]).In("path")
	}
	slices.Sort(found)
	return found, nil
}

func (f *FS) leadsToDir(rel string) bool {
	h, err := f.tree.OpenDir(rel)
	if err != nil {
		return false
	}
	_ = h.Close()
	return true
}
