package profile

import (
	"context"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// page is the part of read_file's result that is used here.
type page struct {
	Path      string `json:"path"`
	Content   string `json:"content"`
	Limit     int64  `json:"limit"`
	Truncated bool   `json:"truncated"`
}

// maxWhole is the largest file that an adapter reads completely, in bytes: edit_file's maximum.
const maxWhole = 8 << 20

// readWhole reads a text file page by page. If the file changes meanwhile, the later write fails,
// because edits contain the old text.
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

// splitLines returns lines with their ends.
func splitLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, line)
	}
	return lines
}

// change replaces some lines of a file.
type change struct {
	path     string
	from, to int      // lines of the old text, to exclusive
	old      []string // the whole old text, lines with their ends
	now      string   // the new text
}

// apply makes the change with one edit_file, whose old text is the text that was read, so a file
// that has changed since isn't overwritten.
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

// unique widens the change by neighbouring lines until its old text is unique in the file.
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

// whole returns the complete new text of the file.
func (c change) whole() string {
	return strings.Join(c.old[:c.from], "") + c.now + strings.Join(c.old[c.to:], "")
}

// reverse returns the opposite change.
func (c change) reverse() change {
	now := splitLines(c.whole())
	return change{path: c.path, from: c.from, to: len(now) - (len(c.old) - c.to), old: now, now: strings.Join(c.old[c.from:c.to], "")}
}
