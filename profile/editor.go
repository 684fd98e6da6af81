package profile

import (
	"context"
	"fmt"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// editor is str_replace_based_edit_tool: one tool with four commands.
type editor struct{ to Caller }

type editorParams struct {
	Command    string  `json:"command" enum:"view|create|str_replace|insert" jsonschema:"view a file or directory, create or overwrite a file, replace one exact text, insert text after a line"`
	Path       string  `json:"path" jsonschema:"file, or directory to view: /workspace/dir/file or relative to the workspace"`
	ViewRange  []int64 `json:"view_range,omitempty" jsonschema:"for view of a file: first and last line, from 1; -1 as last is the end"`
	FileText   *string `json:"file_text,omitempty" jsonschema:"for create: the whole content"`
	OldStr     *string `json:"old_str,omitempty" jsonschema:"for str_replace: exact text that stands once in the file"`
	NewStr     *string `json:"new_str,omitempty" jsonschema:"for str_replace: the text instead; left out deletes"`
	InsertLine *int64  `json:"insert_line,omitempty" jsonschema:"for insert: the line to insert after, 0 for the beginning"`
	InsertText *string `json:"insert_text,omitempty" jsonschema:"for insert: the text"`
}

type editorResult struct {
	Message string `json:"message" jsonschema:"what was done, or what was viewed: lines with their numbers, or the paths of a directory"`
}

func (r editorResult) Text() string { return r.Message }

func (e *editor) tool() tool.Tool {
	return collecting(e.to, tool.Spec{
		Name: "str_replace_based_edit_tool", Title: "View and edit files", Destructive: true,
		Description: "View, create and edit text files of the workspace. str_replace needs a text that occurs exactly once. " +
			"insert puts whole lines after insert_line. A directory is viewed two levels deep, hidden names left out.",
	}, func(ctx context.Context, to Caller, p editorParams) (editorResult, error) {
		return (&editor{to}).call(ctx, p)
	})
}

// editorNames maps the parameters of wisbox's own tools to those of this contract.
var editorNames = map[string]string{"file_path": "path", "content": "file_text", "old_string": "old_str", "new_string": "new_str"}

func (e *editor) call(ctx context.Context, p editorParams) (editorResult, error) {
	var message string
	var err error
	switch p.Command {
	case "view":
		message, err = e.view(ctx, p)
	case "create":
		message, err = e.create(ctx, p)
	case "str_replace":
		message, err = e.replace(ctx, p)
	case "insert":
		message, err = e.insert(ctx, p)
	}
	return editorResult{message}, renamed(err, editorNames)
}

// missing returns the error for a missing parameter of a command.
func missing(command, field string) error {
	return tool.Errorf(tool.Invalid, "%s is missing; the command %s needs it", field, command).In(field)
}

func (e *editor) create(ctx context.Context, p editorParams) (string, error) {
	if p.FileText == nil {
		return "", missing(p.Command, "file_text")
	}
	write := func(mode string) error {
		return do(ctx, e.to, "write_file", args{"file_path": p.Path, "content": *p.FileText, "mode": mode})
	}
	err := write("create")
	if tool.KindOf(err) != tool.Exists {
		return "File created: " + p.Path, err
	}
	return "File overwritten: " + p.Path, write("overwrite")
}

func (e *editor) replace(ctx context.Context, p editorParams) (string, error) {
	if p.OldStr == nil {
		return "", missing(p.Command, "old_str")
	}
	old, now := *p.OldStr, ""
	if p.NewStr != nil {
		now = *p.NewStr
	}
	if strings.Contains(old+now, "\n") && !strings.Contains(old+now, "\r") {
		whole, err := readWhole(ctx, e.to, p.Path)
		if err != nil {
			return "", err
		}
		old, now = withEnds(old, whole), withEnds(now, whole)
	}
	r, err := ask[struct {
		Diff string `json:"diff"`
	}](ctx, e.to, "edit_file", args{"file_path": p.Path, "old_string": old, "new_string": now})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("File edited: %s\n%s", p.Path, r.Diff), nil
}

func (e *editor) insert(ctx context.Context, p editorParams) (string, error) {
	if p.InsertLine == nil {
		return "", missing(p.Command, "insert_line")
	}
	if p.InsertText == nil {
		return "", missing(p.Command, "insert_text")
	}
	whole, err := readWhole(ctx, e.to, p.Path)
	if err != nil {
		return "", err
	}
	lines := splitLines(whole)
	at := *p.InsertLine
	if at < 0 || at > int64(len(lines)) {
		return "", tool.Errorf(tool.Invalid, "insert_line is %d; it must be from 0 to %d, the lines of the file", at, len(lines)).In("insert_line")
	}
	err = inserted(p.Path, lines, int(at), withEnds(*p.InsertText, whole)).apply(ctx, e.to)
	return fmt.Sprintf("Text inserted after line %d: %s", at, p.Path), err
}

// withEnds returns a text with the line ends of a file whose lines all end in CRLF.
func withEnds(text, file string) string {
	if endOf(file) == "\n" || strings.Contains(text, "\r") {
		return text
	}
	return strings.ReplaceAll(text, "\n", "\r\n")
}

// endOf returns how the lines of a file end: CRLF if all do.
func endOf(file string) string {
	if n := strings.Count(file, "\n"); n > 0 && strings.Count(file, "\r\n") == n {
		return "\r\n"
	}
	return "\n"
}

// inserted inserts whole lines after line at. If the last line had no newline, it gets one, and the
// new last line has none.
func inserted(path string, lines []string, at int, text string) change {
	c, end := change{path: path, from: at, to: at, old: lines, now: text}, endOf(strings.Join(lines, ""))
	if at == len(lines) && at > 0 && !strings.HasSuffix(lines[at-1], "\n") {
		c.from, c.now = at-1, lines[at-1]+end+strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
		return c
	}
	if !strings.HasSuffix(text, "\n") {
		c.now += end
	}
	return c
}
