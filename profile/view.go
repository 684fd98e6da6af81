package profile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

func (e *editor) view(ctx context.Context, p editorParams) (string, error) {
	ask, from, err := viewed(p)
	if err != nil {
		return "", err
	}
	text, err := e.viewFile(ctx, ask, from)
	if kind := tool.KindOf(err); kind != tool.IsDir && !isRoot(p.Path) {
		return text, err
	}
	if p.ViewRange != nil {
		return "", tool.Errorf(tool.Invalid, "view_range is for files; %s is a directory", p.Path).In("view_range")
	}
	return e.viewDir(ctx, p.Path)
}

func isRoot(path string) bool {
	return slices.Contains([]string{"", "/workspace", "workspace"}, strings.TrimRight(path, "/"))
}

// viewed returns the arguments of read_file for a range of lines.
func viewed(p editorParams) (ask args, from int64, err error) {
	ask = args{"file_path": p.Path}
	if p.ViewRange == nil {
		return ask, 1, nil
	}
	if len(p.ViewRange) != 2 || p.ViewRange[0] < 1 || p.ViewRange[1] != -1 && p.ViewRange[1] < p.ViewRange[0] {
		return nil, 0, tool.Errorf(tool.Invalid, "view_range must be two numbers: the first line, from 1, and the last, or -1 for the end").In("view_range")
	}
	ask["offset"] = p.ViewRange[0] - 1
	if p.ViewRange[1] != -1 {
		ask["limit"] = p.ViewRange[1] - p.ViewRange[0] + 1
	}
	return ask, p.ViewRange[0], nil
}

func (e *editor) viewFile(ctx context.Context, arguments args, from int64) (string, error) {
	p, err := ask[page](ctx, e.to, "read_file", arguments)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	number := from
	for line := range strings.Lines(p.Content) {
		fmt.Fprintf(&b, "%6d\t%s\n", number, shorten(strings.TrimSuffix(line, "\n"), maxViewLine))
		number++
	}
	switch {
	case p.Content == "":
		return "(there are no lines here)", nil
	case p.Truncated && arguments["limit"] == nil:
		fmt.Fprintf(&b, "(the file goes on; view it from line %d)\n", number)
	}
	return b.String(), nil
}

const maxViewLine = 2000 // characters

type entry struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

// viewDir lists a directory two levels deep.
func (e *editor) viewDir(ctx context.Context, path string) (string, error) {
	top, err := ask[struct {
		Path    string  `json:"path"`
		Entries []entry `json:"entries"`
	}](ctx, e.to, "ls", args{"path": path})
	if err != nil {
		return "", err
	}
	below, err := ask[struct {
		Matches   []entry `json:"matches"`
		Truncated bool    `json:"truncated"`
	}](ctx, e.to, "glob", args{"path": path, "pattern": "*/*"})
	if err != nil {
		return "", err
	}
	var lines []string
	for _, one := range append(top.Entries, below.Matches...) {
		if !strings.Contains("/"+strings.TrimPrefix(one.Path, top.Path), "/.") {
			lines = append(lines, one.line())
		}
	}
	slices.Sort(lines)
	if below.Truncated {
		lines = append(lines, "(there is more; view a directory below)")
	}
	return strings.Join(append([]string{top.Path}, lines...), "\n"), nil
}

func (e entry) line() string {
	if e.Kind == "directory" {
		return e.Path + "/"
	}
	return e.Path
}
