package vfs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

type editParams struct {
	FilePath   string `json:"file_path" alias:"path" jsonschema:"text file to change, relative to the workspace"`
	OldString  string `json:"old_string" jsonschema:"exact text to replace, with its line ends and blanks; not empty"`
	NewString  string `json:"new_string" jsonschema:"exact text to put there; empty deletes"`
	ReplaceAll bool   `json:"replace_all,omitempty" default:"false" jsonschema:"replace every match; else there must be exactly one"`
}

// EditResult is the answer of edit_file.
type EditResult struct {
	Path         string `json:"path"`
	Replacements int    `json:"replacements"`
	Version      int64  `json:"version"`
	Diff         string `json:"diff" jsonschema:"unified; shortened when it is long"`
	Notice       string `json:"notice,omitempty" jsonschema:"what of the old file the new one lacks"`

	sum string
}

// Changes returns the change for the audit log.
func (r *EditResult) Changes() []tool.Change { return []tool.Change{{Path: r.Path, SHA256: r.sum}} }

func (f *FS) editTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "edit_file", Title: "Edit a file", Destructive: true, Effect: tool.FileEffect, NeedsRoom: true,
		Description: "Replace exact text in a UTF-8 file of at most 8 MiB. Everything else stays byte for byte. " +
			"No match is no_match; several without replace_all are ambiguous, so include more of the surrounding text.",
	}, f.edit)
}

func (f *FS) edit(ctx context.Context, p editParams) (*EditResult, error) {
	rel, err := f.opts.Paths.parseFile(p.FilePath)
	if err != nil {
		return nil, in(err, "file_path")
	}
	if p.OldString == "" {
		return nil, tool.Errorf(tool.Invalid, "old_string is empty; give the exact text to replace").In("old_string")
	}
	if p.OldString == p.NewString {
		return nil, tool.Errorf(tool.Invalid, "new_string is the same as old_string; nothing would change").In("new_string")
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
	c := &change{f: f, who: clientOf(ctx), rel: rel}
	defer c.release()
	text, err := c.text(ctx)
	if err != nil {
		return nil, err
	}
	at, n, err := matches(text, p)
	if err != nil {
		return nil, err
	}
	if size := int64(len(text)) + int64(n)*int64(len(p.NewString)-len(p.OldString)); size > f.opts.Limits.EditBytes {
		return nil, tool.Errorf(tool.TooLarge, "the file would have %d bytes; the maximum is %d; use a program for larger files", size, f.opts.Limits.EditBytes).In("new_string")
	}
	before, after := []byte(text), []byte(strings.Replace(text, p.OldString, p.NewString, n))
	if c.latin1 {
		if before, after, err = bothToLatin1(before, after); err != nil {
			return nil, in(err, "new_string")
		}
	}
	if err := c.prepareEdit(ctx, before, after); err != nil {
		return nil, err
	}
	if err := c.commit(); err != nil {
		c.rollback()
		return nil, err
	}
	w := c.written()
	if mixes(text, p.NewString) {
		w.Notice = strings.TrimPrefix(w.Notice+"; the file's lines end in CRLF, and new_string has lines that end in LF", "; ")
	}
	return &EditResult{Path: w.Path, Replacements: n, Version: w.Version, Diff: unified(rel, text, at, n, p), Notice: w.Notice, sum: w.SHA256}, nil
}

func bothToLatin1(before, after []byte) (_, _ []byte, err error) {
	if before, err = toLatin1(string(before)); err == nil {
		after, err = toLatin1(string(after))
	}
	return before, after, err
}

// text returns the content of the file to edit, which has the encoding that it was written with.
func (c *change) text(ctx context.Context) (string, error) {
	if err := c.locate(); err != nil {
		return "", err
	}
	h, err := c.openOld(ctx)
	if err != nil {
		return "", err
	}
	defer h.Close()
	data, err := readAll(ctx, h, c.f.opts.Limits.EditBytes)
	if err != nil {
		return "", err
	}
	if c.latin1 = c.f.versions.latin1(c.parent.Path, c.old); c.latin1 {
		return fromLatin1(data), nil
	}
	if !utf8.Valid(data) {
		return "", tool.Errorf(tool.NotText, "%s is not UTF-8 text; change it with a program", c.f.opts.Paths.Display(c.rel))
	}
	return string(data), nil
}

// matches finds old_string, which must occur exactly once unless all matches are replaced. It
// returns the number of matches, and the offsets of only as many as a diff shows, since there may
// be millions.
func matches(text string, p editParams) (at []int, n int, err error) {
	first := strings.Index(text, p.OldString)
	if first < 0 {
		return nil, 0, tool.Errorf(tool.NoMatch, "old_string does not occur in the file; %s", whyNot(text, p.OldString)).In("old_string")
	}
	if p.ReplaceAll {
		return occurrences(text, p.OldString, first, diffEdits), strings.Count(text, p.OldString), nil
	}
	if more := strings.Index(text[first+1:], p.OldString); more >= 0 {
		return nil, 0, ambiguous(text, p.OldString, first)
	}
	return []int{first}, 1, nil
}

// whyNot returns what to do about a text that doesn't occur in the file.
func whyNot(text, old string) string {
	const lf, crlf = "\n", "\r\n"
	if !strings.Contains(strings.ReplaceAll(text, crlf, lf), strings.ReplaceAll(old, crlf, lf)) {
		return unlike(text, old)
	}
	switch cr := strings.Count(text, crlf); {
	case cr == strings.Count(text, lf):
		return `it is there with other line ends: the file's lines end in CRLF; write \r\n in old_string, and in new_string`
	case cr == 0:
		return `it is there with other line ends: the file's lines end in LF; write \n without \r in old_string, and in new_string`
	}
	return `it is there with other line ends: some lines of the file end in CRLF, others in LF; read it with encoding base64 to see which`
}

// unlike returns what to do about a text that isn't in the file with other line ends either.
func unlike(text, old string) string {
	switch {
	case strings.Contains(plainly(text), plainly(old)):
		return "it is there with other blanks, quotation marks or dashes, such as a no-break blank or a typographic quotation mark; read it again and copy these characters exactly"
	case numbered().MatchString(old) && strings.Contains(text, numbered().ReplaceAllString(old, "")):
		return "it begins with the line numbers that read_file shows; leave them out"
	}
	return "read it again and copy the text exactly"
}

// numbered matches the line numbers of read_file and of cat -n.
var numbered = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ *[0-9]+( \| |\t|: )`) })

// plainly writes a text with plain blanks, one in place of several, and with plain punctuation.
func plainly(text string) string {
	return strings.Join(strings.FieldsFunc(plain.Replace(text), unicode.IsSpace), " ")
}

var plain = strings.NewReplacer("\r\n", "\n", "\u2018", "'", "\u2019", "'", "\u201c", `"`, "\u201d", `"`, "\u2010", "-", "\u2011", "-", "\u2013", "-", "\u2014", "-", "\u2212", "-", "\u200b", "", "\ufeff", "")

// mixes reports whether an edit puts lines that end in LF into a file whose lines all end in CRLF.
func mixes(text, now string) bool {
	n := strings.Count(text, "\n")
	return n > 0 && strings.Count(text, "\r\n") == n && strings.Count(now, "\n") > strings.Count(now, "\r\n")
}

// occurrences returns the offsets of the first matches of old, which don't overlap.
func occurrences(text, old string, first, most int) []int {
	at := []int{first}
	for next := first + len(old); len(at) < most; {
		i := strings.Index(text[next:], old)
		if i < 0 {
			break
		}
		at = append(at, next+i)
		next += i + len(old)
	}
	return at
}

const maxLinesNamed = 10

func ambiguous(text, old string, first int) error {
	var lines []string
	line, from, n := 1, 0, strings.Count(text, old)
	for _, at := range occurrences(text, old, first, maxLinesNamed) {
		line += strings.Count(text[from:at], "\n")
		from = at
		lines = append(lines, fmt.Sprint(line))
	}
	if n > len(lines) {
		lines = append(lines, "…")
	}
	return tool.Errorf(tool.Ambiguous, "old_string occurs %s, on line %s; add text around it, or set replace_all",
		times(n), strings.Join(lines, ", ")).In("old_string")
}

// times returns n in words. One match here means that it overlaps itself.
func times(n int) string {
	if n == 1 {
		return "several times, overlapping"
	}
	return fmt.Sprintf("%d times", n)
}

// Text returns a line about the change, then the diff.
func (r *EditResult) Text() string {
	return fmt.Sprintf("%s in %s, version %d\n%s%s", count(r.Replacements, "replacement", "replacements"), r.Path, r.Version, r.Diff, noticeLine(r.Notice))
}
