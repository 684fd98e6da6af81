package vfs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

type editParams struct {
	FilePath   string `json:"file_path" jsonschema:"text file to change, relative to the workspace"`
	OldString  string `json:"old_string" jsonschema:"exact text to replace, with its line ends and blanks; not empty"`
	NewString  string `json:"new_string" jsonschema:"exact text to put there; empty deletes"`
	ReplaceAll bool   `json:"replace_all,omitempty" default:"false" jsonschema:"replace every match; else there must be exactly one"`
}

// EditResult is what edit_file answers.
type EditResult struct {
	Path         string `json:"path"`
	Replacements int    `json:"replacements"`
	Version      int64  `json:"version"`
	Diff         string `json:"diff" jsonschema:"unified; shortened when it is long"`

	sum string
}

// Changes tells the audit log what was written.
func (r *EditResult) Changes() []tool.Change { return []tool.Change{{Path: r.Path, SHA256: r.sum}} }

func (f *FS) editTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "edit_file", Title: "Edit a file", Destructive: true,
		Description: "Replace exact text in a UTF-8 file of at most 8 MiB. Everything else stays byte for byte. " +
			"No match is no_match; several without replace_all are ambiguous, so give more of the text around.",
	}, f.edit)
}

func (f *FS) edit(ctx context.Context, p editParams) (*EditResult, error) {
	rel, err := parseFile(p.FilePath)
	if err != nil {
		return nil, in(err, "file_path")
	}
	if p.OldString == "" {
		return nil, tool.Errorf(tool.Invalid, "old_string is empty; give the exact text to replace").In("old_string")
	}
	if err := errors.Join(f.checkLength("old_string", p.OldString), f.checkLength("new_string", p.NewString)); err != nil {
		return nil, tool.AsError(err)
	}
	leave, err := f.enterToChange(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return f.editLocked(ctx, rel, p)
}

func (f *FS) editLocked(ctx context.Context, rel string, p editParams) (out *EditResult, err error) {
	for range retries {
		out, err = f.editOnce(ctx, rel, p)
		if !errors.Is(err, beneath.ErrChanged) {
			break
		}
	}
	return out, in(fail(err, rel), "file_path")
}

func (f *FS) editOnce(ctx context.Context, rel string, p editParams) (*EditResult, error) {
	c := &change{f: f, rel: rel}
	defer c.release()
	text, err := c.text(ctx)
	if err != nil {
		return nil, err
	}
	at, err := matches(text, p)
	if err != nil {
		return nil, err
	}
	if size := int64(len(text)) + int64(len(at))*int64(len(p.NewString)-len(p.OldString)); size > f.opts.Limits.EditBytes {
		return nil, tool.Errorf(tool.TooLarge, "the file would have %d bytes; at most %d are written here", size, f.opts.Limits.EditBytes).In("new_string")
	}
	c.fits = func(now *unix.Stat_t) bool { return sameContent(c.old, now) }
	if err := c.stage(beneath.Mode(c.old), nil, []byte(replaceAt(text, at, p))); err != nil {
		return nil, err
	}
	if err := c.commit(); err != nil {
		return nil, err
	}
	w := c.written()
	return &EditResult{Path: w.Path, Replacements: len(at), Version: w.Version, Diff: unified(rel, text, at, p), sum: w.SHA256}, nil
}

// text is the content of the file to edit.
func (c *change) text(ctx context.Context) (string, error) {
	if err := c.locate(); err != nil {
		return "", err
	}
	h, err := c.openOld()
	if err != nil {
		return "", err
	}
	defer h.Close()
	data, err := readAll(ctx, h, c.f.opts.Limits.EditBytes)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(data) {
		return "", tool.Errorf(tool.NotText, "%s is not UTF-8 text; change it with a program", Display(c.rel))
	}
	return string(data), nil
}

// matches are the places of old_string, which must not overlap when all of them
// are replaced and must be one alone otherwise.
func matches(text string, p editParams) ([]int, error) {
	first := strings.Index(text, p.OldString)
	if first < 0 {
		return nil, tool.Errorf(tool.NoMatch, "old_string does not occur in the file; read it again and copy the text exactly").In("old_string")
	}
	if p.ReplaceAll {
		return occurrences(text, p.OldString, first, len(p.OldString)), nil
	}
	if more := strings.Index(text[first+1:], p.OldString); more >= 0 {
		return nil, ambiguous(text, p.OldString, first)
	}
	return []int{first}, nil
}

func occurrences(text, old string, first, step int) []int {
	at := []int{first}
	for next := first + step; ; {
		i := strings.Index(text[next:], old)
		if i < 0 {
			return at
		}
		at = append(at, next+i)
		next += i + step
	}
}

const maxLinesNamed = 10

func ambiguous(text, old string, first int) error {
	var lines []string
	line, from := 1, 0
	places := occurrences(text, old, first, len(old))
	for _, at := range places {
		if len(lines) == maxLinesNamed {
			lines = append(lines, "…")
			break
		}
		line += strings.Count(text[from:at], "\n")
		from = at
		lines = append(lines, fmt.Sprint(line))
	}
	return tool.Errorf(tool.Ambiguous, "old_string occurs %s, on line %s; add text around it, or set replace_all",
		times(len(places)), strings.Join(lines, ", ")).In("old_string")
}

// times says how often; a single place here means that it overlaps itself.
func times(n int) string {
	if n == 1 {
		return "several times, overlapping"
	}
	return fmt.Sprintf("%d times", n)
}

func replaceAt(text string, at []int, p editParams) string {
	var b strings.Builder
	b.Grow(len(text) + len(at)*(len(p.NewString)-len(p.OldString)))
	from := 0
	for _, i := range at {
		b.WriteString(text[from:i])
		b.WriteString(p.NewString)
		from = i + len(p.OldString)
	}
	b.WriteString(text[from:])
	return b.String()
}

// Text is the diff, under a line that says what was done.
func (r *EditResult) Text() string {
	return fmt.Sprintf("%s in %s, version %d\n%s", count(r.Replacements, "replacement", "replacements"), r.Path, r.Version, r.Diff)
}
