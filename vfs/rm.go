package vfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

type rmParams struct {
	Path         string `json:"path" jsonschema:"file, directory or symlink to remove, relative to the workspace"`
	AllowMissing bool   `json:"allow_missing,omitempty" default:"false" jsonschema:"a missing path is not an error"`
}

// Removal is the answer of rm.
type Removal struct {
	Path    string `json:"path"`
	Deleted int64  `json:"deleted" jsonschema:"entries removed, the named one included"`
}

func (f *FS) rmTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "rm", Title: "Remove", Destructive: true, Effect: tool.FreeingEffect,
		Description: "Remove a file, or a directory with everything in it. Of a symlink, only the link is removed, never its target.",
	}, func(ctx context.Context, p rmParams) (*Removal, error) {
		rel, err := f.opts.Paths.parseFile(p.Path)
		if err != nil {
			return nil, in(err, "path")
		}
		return f.remove(ctx, rel, p.AllowMissing)
	})
}

// Delete removes path and everything below it and counts the entries.
func (f *FS) Delete(ctx context.Context, path string) (int64, error) {
	rel, err := notTop(f.opts.Paths.clean(path))
	if err != nil {
		return 0, in(err, "path")
	}
	r, err := f.remove(ctx, rel, false)
	if err != nil {
		return 0, err
	}
	return r.Deleted, nil
}

func (f *FS) remove(ctx context.Context, rel string, allowMissing bool) (*Removal, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	n, err := f.removeEntry(ctx, rel)
	if allowMissing && errors.Is(err, fs.ErrNotExist) {
		return &Removal{Path: f.opts.Paths.Display(rel)}, nil
	}
	if err != nil {
		return nil, in(fail(err, rel), "path")
	}
	return &Removal{Path: f.opts.Paths.Display(rel), Deleted: n}, nil
}

// Changes returns the removal for the audit log.
func (r *Removal) Changes() []tool.Change {
	if r.Deleted == 0 {
		return nil
	}
	return []tool.Change{{Path: r.Path, Removed: true}}
}

// removeTime bounds a removal, since programs may add entries as fast as it removes them.
var removeTime = patience.For(2 * time.Minute)

// removeEntry moves the entry out of the workspace by one rename, under the lock, and then removes
// it where programs can't see it.
func (f *FS) removeEntry(ctx context.Context, rel string) (int64, error) {
	unlock, err := f.lock(ctx)
	if err != nil {
		return 0, err
	}
	p, err := f.tree.Parent(rel)
	if err != nil {
		unlock()
		return 0, err
	}
	defer p.Close()
	name, moved := f.takeOut(p)
	if !moved { // it is a directory that may not be moved, or gone, or there is no room for the name
		defer unlock()
		ctx, cancel := context.WithTimeout(ctx, removeTime)
		defer cancel()
		n, err := beneath.RemoveAllContext(ctx, p.Dir(), p.Name)
		f.versions.removed(p.Path)
		return n, err
	}
	f.versions.removed(p.Path)
	unlock()
	return f.staging.Remove(context.WithoutCancel(ctx), name) // it has left the workspace: finish the removal even if the caller cancels
}

func (f *FS) takeOut(p *beneath.Parent) (name string, moved bool) {
	name = f.staging.Name()
	err := sys.Rename(int(p.Dir().Fd()), p.Name, int(f.staging.Dir().Fd()), name, sys.NoReplace)
	return name, err == nil
}

// Text returns the result in one line.
func (r *Removal) Text() string {
	return fmt.Sprintf("removed %s: %s\n", r.Path, count(int(r.Deleted), "entry", "entries"))
}
