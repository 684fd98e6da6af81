package profile

import (
	"context"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// page is what of read_file's result is used here.
type page struct {
	Path      string `json:"path"`
	Content   string `json:"content"`
	Limit     int64  `json:"limit"`
	Truncated bool   `json:"truncated"`
}

// maxWhole is the largest file that an adapter reads whole, in bytes: what
// edit_file takes.
const maxWhole = 8 << 20

// readWhole reads a text file page by page. A file that changes meanwhile is
// found out when it is written: edits say what they replace.
func readWhole(ctx context.Context, to Caller, path string) (string, error) {
	var b strings.Builder
	for offset := int64(0); ; {
		p, err := ask[page](ctx, to, "read_file", args{"file_path": path, "offset": offset})
		if err != nil {
			return "", err
		}
		b.WriteString(p.Content)
		if !p.Truncated {
			return b.String(), nil
		}
		if b.Len() > maxWhole || p.Limit == 0 || !strings.HasSuffix(p.Content, "\n") {
			return "", tool.Errorf(tool.TooLarge, "the file is larger than 8 MiB or has a line over 256 KiB; change it with a program")
		}
		offset += p.Limit
	}
}

// splitLines gives lines with their ends.
func splitLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, line)
	}
	return lines
}

// change is a new text for some lines of a file.
type change struct {
	path     string
	from, to int      // lines of the old text, to exclusive
	old      []string // the whole old text, lines with their ends
	now      string   // what stands there instead
}

// apply makes the change with one edit_file: its old text is what was read, so a
// file that changed since is not overwritten.
func (c change) apply(ctx context.Context, to Caller) error {
	old, now := c.unique()
	if old == now {
		return nil
	}
	if old == "" { // an empty file
		return do(ctx, to, "write_file", args{"file_path": c.path, "content": now, "mode": "overwrite"})
	}
	return do(ctx, to, "edit_file", args{"file_path": c.path, "old_string": old, "new_string": now})
}

// unique widens the change by lines around until its old text stands once in the
// file.
func (c change) unique() (old, now string) {
	whole := strings.Join(c.old, "")
	from, to := c.from, c.to
	for step := 1; ; step *= 2 {
		old = strings.Join(c.old[from:to], "")
		if old != "" && once(whole, old) || from == 0 && to == len(c.old) {
			return old, strings.Join(c.old[from:c.from], "") + c.now + strings.Join(c.old[c.to:to], "")
		}
		from, to = max(0, from-step), min(len(c.old), to+step)
	}
}

func once(whole, part string) bool {
	i := strings.Index(whole, part)
	return i >= 0 && !strings.Contains(whole[i+1:], part)
}

// whole is the new text of the file.
func (c change) whole() string {
	return strings.Join(c.old[:c.from], "") + c.now + strings.Join(c.old[c.to:], "")
}

// reverse is the change back.
func (c change) reverse() change {
	now := splitLines(c.whole())
	return change{path: c.path, from: c.from, to: len(now) - (len(c.old) - c.to), old: now, now: strings.Join(c.old[c.from:c.to], "")}
}
