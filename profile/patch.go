package profile

import (
	"context"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// patcher is OpenAI's apply_patch.
type patcher struct{ to Caller }

type patchParams struct {
	Input string `json:"input" jsonschema:"the patch, from \"*** Begin Patch\" to \"*** End Patch\""`
}

type patchResult struct {
	Files []patchedFile `json:"files"`
}

type patchedFile struct {
	Path    string `json:"path"`
	Action  string `json:"action" enum:"add|update|delete|move"`
	MovedTo string `json:"moved_to,omitempty"`
}

func (r patchResult) Text() string {
	lines := []string{"Done. These files changed:"}
	for _, f := range r.Files {
		line := strings.ToUpper(f.Action[:1]) + " " + f.Path
		if f.MovedTo != "" {
			line += " -> " + f.MovedTo
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (p *patcher) tool() tool.Tool {
	return collecting(p.to, tool.Spec{
		Name: "apply_patch", Title: "Apply a patch", Destructive: true,
		Description: "Add, update, move and delete files by a patch in the V4A format:\n" +
			"*** Begin Patch\n*** Update File: dir/a.py\n@@ def f():\n unchanged line\n-old line\n+new line\n*** Add File: b.txt\n+its line\n*** Delete File: c.txt\n*** End Patch\n" +
			"If a part doesn't fit, nothing is changed.",
	}, func(ctx context.Context, to Caller, params patchParams) (patchResult, error) {
		return (&patcher{to}).call(ctx, params)
	})
}

func (p *patcher) call(ctx context.Context, params patchParams) (patchResult, error) {
	files, err := parsePatch(params.Input)
	if err != nil {
		return patchResult{}, err
	}
	var edits, removals []step
	out := patchResult{}
	for _, f := range files {
		e, r, err := p.plan(ctx, f)
		if err != nil {
			return patchResult{}, renamed(err, map[string]string{"file_path": "input"})
		}
		edits, removals = append(edits, e...), append(removals, r...)
		done := patchedFile{Path: f.path, Action: f.action, MovedTo: f.moveTo}
		if f.moveTo != "" {
			done.Action = "move"
		}
		out.Files = append(out.Files, done)
	}
	return out, runAll(ctx, slices.Concat(edits, removals)) // removals come last: they can't be undone
}

// step is one change of a file and its undoing.
type step struct{ do, undo func(context.Context) error }

// runAll runs the steps. If one fails, it undoes the earlier ones.
func runAll(ctx context.Context, steps []step) error {
	for i, s := range steps {
		err := s.do(ctx)
		if err == nil {
			continue
		}
		for _, done := range slices.Backward(steps[:i]) {
			if done.undo != nil {
				_ = done.undo(context.WithoutCancel(ctx)) // a failed undo isn't reported: its error would hide the first
			}
		}
		return err
	}
	return nil
}

// plan reads the files for a part of the patch, and changes nothing.
func (p *patcher) plan(ctx context.Context, f filePatch) (edits, removals []step, err error) {
	switch f.action {
	case "add":
		content := ""
		if len(f.lines) > 0 {
			content = strings.Join(f.lines, "\n") + "\n"
		}
		s, err := p.create(ctx, f.path, content)
		return []step{s}, nil, err
	case "delete":
		_, err := ask[page](ctx, p.to, "read_file", args{"file_path": f.path, "encoding": "base64", "limit": 1})
		return nil, []step{p.remove(f.path)}, err
	}
	whole, err := readWhole(ctx, p.to, f.path)
	if err != nil {
		return nil, nil, err
	}
	c, err := f.update(whole)
	if err != nil || f.moveTo == "" {
		return []step{p.edit(c)}, nil, err
	}
	s, err := p.create(ctx, f.moveTo, c.whole())
	return []step{s}, []step{p.remove(f.path)}, err
}

// maxWriteFile is write_file's maximum, in characters.
const maxWriteFile = 48_000

// create creates a new file, in parts if it is long.
func (p *patcher) create(ctx context.Context, path, content string) (step, error) {
	_, err := ask[page](ctx, p.to, "read_file", args{"file_path": path, "encoding": "base64", "limit": 1})
	switch {
	case err == nil:
		return step{}, tool.Errorf(tool.Exists, "%s is there already; update it, or delete it first", path).In("input")
	case tool.KindOf(err) != tool.NotFound:
		return step{}, err
	}
	return step{do: func(ctx context.Context) error { return p.write(ctx, path, content) }, undo: p.remove(path).do}, nil
}

func (p *patcher) write(ctx context.Context, path, content string) error {
	mode := "create"
	for part := range slices.Chunk([]rune(content), maxWriteFile) {
		if err := do(ctx, p.to, "write_file", args{"file_path": path, "content": string(part), "mode": mode}); err != nil {
			return err
		}
		mode = "append"
	}
	if content == "" {
		return do(ctx, p.to, "write_file", args{"file_path": path, "content": ""})
	}
	return nil
}

func (p *patcher) edit(c change) step {
	return step{
		do:   func(ctx context.Context) error { return c.apply(ctx, p.to) },
		undo: func(ctx context.Context) error { return c.reverse().apply(ctx, p.to) },
	}
}

func (p *patcher) remove(path string) step {
	return step{do: func(ctx context.Context) error { return do(ctx, p.to, "rm", args{"path": path}) }}
}
