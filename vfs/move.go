package vfs

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

type moveParams struct {
	Path string `json:"path" jsonschema:"file or symlink to move, relative to the workspace"`
	To   string `json:"to" jsonschema:"its new path, where nothing is yet; missing directories are created"`
}

// Move is the answer of move_file.
type Move struct {
	Path string `json:"path"`
	To   string `json:"to"`
}

func (f *FS) moveTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "move_file", Title: "Move a file", Hidden: true, Destructive: true, Effect: tool.FileEffect, NeedsRoom: true,
		Description: "Give a file another path. Its content, mode and links stay. Of a symlink, only the link is moved.",
	}, func(ctx context.Context, p moveParams) (*Move, error) {
		from, err := f.opts.Paths.parseFile(p.Path)
		if err != nil {
			return nil, in(err, "path")
		}
		to, err := f.opts.Paths.parseFile(p.To)
		if err != nil {
			return nil, in(err, "to")
		}
		return f.move(ctx, from, to)
	})
}

// move renames a file under the lock. It never replaces anything.
func (f *FS) move(ctx context.Context, from, to string) (*Move, error) {
	leave, err := f.enterToChange(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	old, err := f.tree.Parent(from)
	if err != nil {
		return nil, in(fail(err, from), "path")
	}
	defer old.Close()
	var st unix.Stat_t
	if err := old.Lstat(&st); err != nil {
		return nil, in(fail(err, from), "path")
	}
	if kindOf(&st) == Directory {
		return nil, in(fail(unix.EISDIR, from), "path")
	}
	now, made, err := f.tree.MakeParent(to, f.staging)
	if err != nil {
		return nil, in(fail(err, to), "to")
	}
	defer func() { now.Close(); made.Close() }()
	if err := f.staging.Move(old, now); err != nil {
		made.Undo()
		made = nil
		var there unix.Stat_t
		if errors.Is(err, unix.EEXIST) && now.Lstat(&there) == nil {
			return nil, in(exists(to, &there), "to")
		}
		return nil, in(fail(err, to), "to")
	}
	asLatin1 := f.versions.latin1(old.Path, &st)
	f.versions.removed(old.Path)
	if err := now.Lstat(&st); err != nil { // a program was quicker
		return nil, in(fail(err, to), "to")
	}
	f.versions.wrote(clientOf(ctx), now.Path, &st, asLatin1)
	return &Move{Path: f.opts.Paths.Display(from), To: f.opts.Paths.Display(to)}, nil
}

// Changes returns both paths for the audit log.
func (m *Move) Changes() []tool.Change {
	return []tool.Change{{Path: m.Path, Removed: true}, {Path: m.To}}
}

// Text returns the result in one line.
func (m *Move) Text() string { return "moved " + m.Path + " to " + m.To + "\n" }
