package profile

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// page is the part of read_file's result that is used here.
type page struct {
	Path      string `json:"path"`
	Content   string `json:"content"`
	Limit     int64  `json:"limit"`
	SizeBytes int64  `json:"size_bytes"`
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
		if max(p.SizeBytes, int64(b.Len())) > maxWhole || p.Limit == 0 || !strings.HasSuffix(p.Content, "\n") {
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
	marked   bool     // the file begins with a byte order mark, which isn't in the texts
}

// apply makes the change with one edit_file, whose old text is the text that was read, so a file
// that has changed since isn't overwritten.
func (c change) apply(ctx context.Context, to Caller) error {
	old, now := c.unique()
	switch {
	case old == now:
		return nil
	case old == "": // an empty file
		return writeParts(ctx, to, c.path, c.whole(), "overwrite")
	case max(utf8.RuneCountInString(old), utf8.RuneCountInString(now)) > maxWriteFile:
		return c.rewrite(ctx, to)
	}
	return do(ctx, to, "edit_file", args{"file_path": c.path, "old_string": old, "new_string": now})
}

// rewrite makes a change that is too large for edit_file.
func (c change) rewrite(ctx context.Context, to Caller) error {
	is, err := readWhole(ctx, to, c.path)
	if err != nil {
		return err
	}
	if is != c.before() {
		return tool.Errorf(tool.Conflict, "%s was changed meanwhile; read it again", c.path)
	}
	return writeParts(ctx, to, c.path, c.whole(), "overwrite")
}

// maxWriteFile is write_file's maximum, in characters.
const maxWriteFile = 48_000

// writeParts writes a file, in parts if it is long.
func writeParts(ctx context.Context, to Caller, path, content, mode string) error {
	text := []rune(content)
	for first := true; first || len(text) > 0; first = false {
		n := min(len(text), maxWriteFile)
		if err := do(ctx, to, "write_file", args{"file_path": path, "content": string(text[:n]), "mode": mode}); err != nil {
			return err
		}
		text, mode = text[n:], "append"
	}
	return nil
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

func (c change) mark() string {
	if c.marked {
		return byteOrderMark
	}
	return ""
}

// before returns the complete old text of the file.
func (c change) before() string { return c.mark() + strings.Join(c.old, "") }

// whole returns the complete new text of the file.
func (c change) whole() string { return c.mark() + c.text() }

func (c change) text() string {
	return strings.Join(c.old[:c.from], "") + c.now + strings.Join(c.old[c.to:], "")
}

// reverse returns the opposite change.
func (c change) reverse() change {
	now := splitLines(c.text())
	return change{path: c.path, from: c.from, to: len(now) - (len(c.old) - c.to), old: now, now: strings.Join(c.old[c.from:c.to], ""), marked: c.marked}
}
