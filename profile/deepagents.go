package profile

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// deepAgents returns the tools of deepagents' file system and sandbox backends.
func (a *adapters) deepAgents() []tool.Tool {
	d := &deep{to: a.to}
	return []tool.Tool{
		a.as("ls", "ls"), a.as("read_file", "read_file"), d.write(),
		a.as("edit_file", "edit_file"), a.as("glob", "glob"), d.grep(), d.execute(),
	}
}

type deep struct{ to Caller }

type deepWriteParams struct {
	FilePath string `json:"file_path" alias:"path" jsonschema:"file to make, relative to the workspace"`
	Content  string `json:"content" jsonschema:"at most 48,000 characters"`
}

type deepWriteResult struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

func (d *deep) write() tool.Tool {
	return collecting(d.to, tool.Spec{
		Name: "write_file", Title: "Write a new file",
		Description: "Create a text file, and missing directories. To change an existing file, use edit_file.",
	}, func(ctx context.Context, to Caller, p deepWriteParams) (deepWriteResult, error) {
		r, err := ask[deepWriteResult](ctx, to, "write_file", args{"file_path": p.FilePath, "content": p.Content})
		if err != nil {
			return deepWriteResult{}, err
		}
		return *r, nil
	})
}

type deepGrepParams struct {
	Pattern    string `json:"pattern" jsonschema:"exact text to look for"`
	Path       string `json:"path,omitempty" default:"/" jsonschema:"directory or file to search"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files that match, *.py for instance"`
	OutputMode string `json:"output_mode,omitempty" default:"files_with_matches" enum:"files_with_matches|content|count" jsonschema:"what to give of each file"`
}

type deepGrepResult struct {
	Files     []deepGrepFile `json:"files"`
	Truncated bool           `json:"truncated"`
}

type deepGrepFile struct {
	Path  string         `json:"path"`
	Count int            `json:"count" jsonschema:"lines that match"`
	Lines []deepGrepLine `json:"lines,omitempty" jsonschema:"with output_mode content"`
}

type deepGrepLine struct {
	LineNumber int64  `json:"line_number"`
	Line       string `json:"line"`
}

func (r deepGrepResult) Text() string {
	var b strings.Builder
	for _, f := range r.Files {
		fmt.Fprintf(&b, "%s: %d\n", f.Path, f.Count)
		for _, l := range f.Lines {
			fmt.Fprintf(&b, "  %d: %s\n", l.LineNumber, l.Line)
		}
	}
	if len(r.Files) == 0 {
		b.WriteString("no matches\n")
	}
	if r.Truncated {
		b.WriteString("(there are more matches; look in a directory or give a glob)\n")
	}
	return b.String()
}

func (d *deep) grep() tool.Tool {
	return tool.New(tool.Spec{
		Name: "grep", Title: "Search text in files", ReadOnly: true, Idempotent: true,
		Description: "Search for an exact text, not a pattern, in the files below a path.",
	}, d.search)
}

func (d *deep) search(ctx context.Context, p deepGrepParams) (deepGrepResult, error) {
	if p.Pattern == "" {
		return deepGrepResult{}, tool.Errorf(tool.Invalid, "pattern is empty; give the text to look for").In("pattern")
	}
	arguments := args{"pattern": regexp.QuoteMeta(p.Pattern), "path": p.Path}
	if p.Glob != "" {
		arguments["glob"] = p.Glob
	}
	found, err := ask[struct {
		Matches []struct {
			Path string `json:"path"`
			deepGrepLine
		} `json:"matches"`
		Truncated bool `json:"truncated"`
	}](ctx, d.to, "grep", arguments)
	if err != nil {
		return deepGrepResult{}, err
	}
	out := deepGrepResult{Files: []deepGrepFile{}, Truncated: found.Truncated}
	for _, m := range found.Matches {
		if n := len(out.Files); n == 0 || out.Files[n-1].Path != m.Path {
			out.Files = append(out.Files, deepGrepFile{Path: m.Path})
		}
		f := &out.Files[len(out.Files)-1]
		f.Count++
		if p.OutputMode == "content" {
			f.Lines = append(f.Lines, m.deepGrepLine)
		}
	}
	return out, nil
}

type deepExecuteParams struct {
	Command string `json:"command" jsonschema:"script for bash"`
}

type deepExecuteResult struct {
	Output    string `json:"output" jsonschema:"stdout, then stderr"`
	ExitCode  int    `json:"exit_code"`
	Status    string `json:"status"`
	Truncated bool   `json:"truncated"`
}

func (r deepExecuteResult) Failed() bool { return r.Status != "exited" }

func (r deepExecuteResult) Text() string {
	return fmt.Sprintf("%s[%s, exit code %d]", ended(r.Output), r.Status, r.ExitCode)
}

func (d *deep) execute() tool.Tool {
	return tool.New(tool.Spec{
		Name: "execute", Title: "Run a shell command", Destructive: true,
		Description: "Run a bash script in the workspace, without network, for at most 120 s. Nothing that it starts outlives it.",
	}, func(ctx context.Context, p deepExecuteParams) (deepExecuteResult, error) {
		r, err := ask[run](ctx, d.to, "shell_execute", args{"script": p.Command, "timeout": 120})
		if err != nil {
			return deepExecuteResult{}, renamed(err, map[string]string{"script": "command"})
		}
		return deepExecuteResult{
			Output: ended(r.Stdout) + r.Stderr, ExitCode: r.ExitCode, Status: r.Status,
			Truncated: r.StdoutDropped+r.StderrDropped > 0,
		}, nil
	})
}
