package vfs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxList    = 10_000  // entries of one answer
	listMemory = 8 << 20 // bytes of one answer
)

type lsParams struct {
	Path string `json:"path,omitempty" default:"/" jsonschema:"directory to list, relative to the workspace"`
}

// Listing is the answer of ls.
type Listing struct {
	Path      string      `json:"path"`
	Entries   []ListEntry `json:"entries" jsonschema:"sorted by name; names that are not valid paths are escaped"`
	Truncated bool        `json:"truncated" jsonschema:"there are more entries"`
}

// ListEntry is one name of a directory. Links are not followed.
type ListEntry struct {
	Name      string `json:"name"`
	Path      string `json:"path"`
	Kind      Kind   `json:"kind" jsonschema:"file, directory, symlink or other"`
	SizeBytes *int64 `json:"size_bytes,omitempty" jsonschema:"of a file"`
	Version   int64  `json:"version,omitempty" jsonschema:"of a file"`
	CreatedAt string `json:"created_at,omitempty" jsonschema:"of a file: when it was first seen"`
	UpdatedAt string `json:"updated_at,omitempty"`
	Target    string `json:"target,omitempty" jsonschema:"the text of a symlink"`
}

func (f *FS) lsTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "ls", Title: "List a directory", ReadOnly: true, Idempotent: true,
		Description: "List the direct entries of a directory of the workspace, sorted by name, with kind, size, version and time. " +
			"Symlinks are shown as such and not followed. At most 10,000 entries.",
	}, f.ls)
}

func (f *FS) ls(ctx context.Context, p lsParams) (*Listing, error) {
	dir, err := f.reach(ctx, p.Path, "path", f.opts.Paths.Parse, f.tree.OpenDir)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	names, more, err := listNames(ctx, dir.Handle)
	if err != nil {
		return nil, in(fail(err, dir.rel), "path")
	}
	l := &Listing{Path: f.opts.Paths.Display(dir.rel), Entries: make([]ListEntry, 0, min(len(names), maxList)), Truncated: more}
	f.list(l, dir, names)
	return l, nil
}

// nameMemory bounds the memory of one directory's names.
const nameMemory = 32 << 20

type dirName struct {
	name string
	kind uint8
}

func listNames(ctx context.Context, dir *beneath.Handle) (names []dirName, more bool, err error) {
	memory := 0
	err = beneath.ReadDir(int(dir.Fd()), func(e beneath.Entry) bool {
		if memory += len(e.Name) + 40; memory > nameMemory || ctx.Err() != nil {
			more = true
			return false
		}
		names = append(names, dirName{strings.Clone(e.Name), e.Type})
		return true
	})
	slices.SortFunc(names, func(a, b dirName) int { return strings.Compare(a.name, b.name) })
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return names, more, err
}

func (f *FS) list(l *Listing, dir *reached, names []dirName) {
	room := listMemory
	for _, n := range names {
		if len(l.Entries) == maxList || room < 0 {
			l.Truncated = true
			return
		}
		if e, there := f.listEntry(dir, n); there {
			l.Entries = append(l.Entries, e)
			room -= jsonSize(e.Name) + jsonSize(e.Path) + jsonSize(e.Target) + 100
		}
	}
}

// listEntry describes one name, which a program may have removed since.
func (f *FS) listEntry(dir *reached, n dirName) (ListEntry, bool) {
	var st unix.Stat_t
	fd := int(dir.Fd())
	if err := unix.Fstatat(fd, n.name, &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
		return ListEntry{}, false
	} else if err != nil { // a directory that may be listed but not entered
		return ListEntry{Name: f.opts.Paths.escape(n.name), Path: f.opts.Paths.Display(join(dir.rel, n.name)), Kind: kindOfType(n.kind)}, true
	}
	e := ListEntry{Name: f.opts.Paths.escape(n.name), Path: f.opts.Paths.Display(join(dir.rel, n.name)), Kind: kindOf(&st), UpdatedAt: timestamp(modified(&st))}
	switch e.Kind {
	case File:
		size, r := st.Size, f.versions.look(join(dir.Path, n.name), &st)
		e.SizeBytes, e.Version, e.CreatedAt = &size, r.version, timestamp(r.createdAt())
	case Symlink:
		e.Target = f.opts.Paths.linkText(fd, n.name)
	}
	return e, true
}

func (g Grammar) linkText(dir int, name string) string {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return ""
	}
	return g.escape(string(buf[:n]))
}

// Text lists one entry per line.
func (l *Listing) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", l.Path, count(len(l.Entries), "entry", "entries"))
	for _, e := range l.Entries {
		b.WriteString(e.line())
	}
	if l.Truncated {
		b.WriteString("(there are more entries; list a subdirectory or use glob)\n")
	}
	return b.String()
}

func (e ListEntry) line() string {
	switch e.Kind {
	case Directory:
		return e.Name + "/\n"
	case Symlink:
		return e.Name + " -> " + e.Target + "\n"
	case File:
		if e.SizeBytes != nil {
			return fmt.Sprintf("%s  %d bytes, version %d, %s\n", e.Name, *e.SizeBytes, e.Version, e.UpdatedAt)
		}
	}
	return e.Name + "  " + string(e.Kind) + "\n"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
