package profile

import (
	"context"
	"crypto/rand"
	"path"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// patchName is the tool, and the client as which it reads files that a patch replaces.
const patchName = "apply_patch"

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
	// Replaced reports that another file was there, which Codex's parser allows too.
	Replaced bool `json:"replaced,omitempty" jsonschema:"a file that existed there was replaced"`
}

func (r patchResult) Text() string {
	lines := []string{"Done. These files changed:"}
	for _, f := range r.Files {
		line := strings.ToUpper(f.Action[:1]) + " " + f.Path
		if f.MovedTo != "" {
			line += " -> " + f.MovedTo
		}
		if f.Replaced {
			line += " (replaced the file that was there)"
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
			"*** Move to: PATH after an update's first line moves the file. If a part doesn't fit, nothing is changed. A file that is added or moved to a path that exists replaces the file there.",
	}, func(ctx context.Context, to Caller, params patchParams) (patchResult, error) {
		return (&patcher{to}).call(ctx, params)
	})
}

func (p *patcher) call(ctx context.Context, params patchParams) (patchResult, error) {
	plan, err := p.planned(ctx, params.Input, false)
	if err != nil {
		tolerant, again := p.planned(ctx, params.Input, true)
		if again != nil {
			return patchResult{}, err
		}
		plan = tolerant
	}
	return plan.result, asInput(runAll(ctx, slices.Concat(plan.edits, plan.last)))
}

// asInput makes the patch the field of an error, since the paths are in it.
func asInput(err error) error {
	e := tool.AsError(err)
	if e == nil || e.Field == "" {
		return err
	}
	return tool.Errorf(e.Kind, "%s", e.Message).In("input").Because(err)
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

// plan holds the steps of a patch. Making it follows the files through the parts of the patch, and changes nothing.
type plan struct {
	to     Caller
	files  map[string]*patchedState // by their path without its forms
	edits  []step
	last   []step // removals, which can't be undone, and what must follow them
	result patchResult
}

// patchedState is a file between two parts of a patch.
type patchedState struct {
	gone bool
	read bool    // the file on disk could be read
	late bool    // a file was removed at its path before: its steps come last
	text *string // its content, if that is known
	from string  // its path on disk before the patch; "" if the patch adds it
}

func (p *patcher) planned(ctx context.Context, input string, padded bool) (*plan, error) {
	files, err := parsePatch(input, padded)
	if err != nil {
		return nil, err
	}
	out := &plan{to: p.to, files: map[string]*patchedState{}}
	for _, f := range files {
		if err := out.add(ctx, f); err != nil {
			return nil, asInput(err)
		}
	}
	return out, nil
}

func (p *plan) add(ctx context.Context, f filePatch) error {
	done := patchedFile{Path: f.path, Action: f.action}
	var err error
	switch {
	case f.action == "add":
		done.Replaced, err = p.create(ctx, f)
	case f.action == "delete":
		err = p.remove(ctx, f.path)
	case f.moveTo != "" && plainPath(f.moveTo) != plainPath(f.path):
		done.Action, done.MovedTo = "move", f.moveTo
		if err = p.update(ctx, f); err == nil {
			done.Replaced, err = p.move(ctx, f.path, f.moveTo)
		}
	default:
		err = p.update(ctx, f)
	}
	p.result.Files = append(p.result.Files, done)
	return err
}

// plainPath returns one form of a path for all of its forms.
func plainPath(path string) string {
	path = strings.TrimPrefix(strings.TrimLeft(path, "/"), "workspace/")
	return strings.Join(strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), "/")
}

// state returns the state of a file, which need not exist.
func (p *plan) state(ctx context.Context, path string) (*patchedState, error) {
	key := plainPath(path)
	if s := p.files[key]; s != nil {
		return s, nil
	}
	s := &patchedState{from: path}
	_, err := ask[page](ctx, p.to, "read_file", args{"file_path": path, "encoding": "base64", "limit": 1})
	switch tool.KindOf(err) {
	case "":
		s.read = true
	case tool.NotFound:
		s.gone = true
	case tool.Escape, tool.Permission, tool.NotRegular: // it can be removed and moved
	default:
		return nil, err
	}
	p.files[key] = s
	return s, nil
}

// place returns the state of a file that a part of the patch puts there. It reads as another client: with the option
// ReadBeforeWrite, only the client's own reading permits it to replace a file.
func (p *plan) place(ctx context.Context, path string) (*patchedState, error) {
	return p.state(tool.WithClient(ctx, patchName), path)
}

// ask adds a step that fails if the client may not replace the file.
func (p *plan) ask(s *patchedState) {
	if path := s.from; s.read && path != "" {
		p.edits = append(p.edits, step{do: func(ctx context.Context) error {
			return do(ctx, p.to, "write_file", args{"file_path": path, "content": "", "mode": "append"})
		}})
	}
}

// existing returns the state of a file that exists.
func (p *plan) existing(ctx context.Context, path string) (*patchedState, error) {
	s, err := p.state(ctx, path)
	if err == nil && s.gone {
		err = tool.Errorf(tool.NotFound, "%s does not exist; the shell can list what does", path).In("input")
	}
	return s, err
}

func (p *plan) then(s *patchedState, next step) {
	if s.late {
		p.last = append(p.last, next)
		return
	}
	p.edits = append(p.edits, next)
}

func (p *plan) create(ctx context.Context, f filePatch) (replaces bool, err error) {
	s, err := p.place(ctx, f.path)
	if err != nil {
		return false, err
	}
	text := ""
	if len(f.lines) > 0 {
		text = strings.Join(f.lines, "\n") + "\n"
	}
	if replaces = !s.gone; replaces {
		if p.rewrite(ctx, s, f.path, text) {
			return true, nil
		}
		p.ask(s)
		if err := p.remove(ctx, f.path); err != nil {
			return true, err
		}
	}
	at := f.path
	if s.late { // the old file is removed once the new one is written
		at = beside(f.path)
		p.last = append(p.last, step{do: p.renaming(at, f.path)})
	}
	*s = patchedState{text: &text, late: s.late}
	p.edits = append(p.edits, step{
		do:   func(ctx context.Context) error { return writeParts(ctx, p.to, at, text, "create") }, // with later updates
		undo: func(ctx context.Context) error { return do(ctx, p.to, "rm", args{"path": at}) },
	})
	return replaces, nil
}

// rewrite replaces the text of a file, which keeps its mode. It reports false if the file isn't one whose text can be read.
func (p *plan) rewrite(ctx context.Context, s *patchedState, file, text string) bool {
	if s.text == nil {
		whole, err := readWhole(tool.WithClient(ctx, patchName), p.to, s.from)
		if err != nil {
			return false
		}
		s.text = &whole
	}
	old := splitLines(*s.text)
	*s.text = text
	if s.from != "" {
		p.change(s, change{path: file, to: len(old), old: old, now: text})
	}
	return true
}

// beside returns a fresh name in the directory of a file.
func beside(file string) string { return path.Join(path.Dir(file), ".apply_patch-"+rand.Text()) }

func (p *plan) renaming(from, to string) func(context.Context) error {
	return func(ctx context.Context) error { return do(ctx, p.to, "move_file", args{"path": from, "to": to}) }
}

func (p *plan) remove(ctx context.Context, file string) error {
	s, err := p.existing(ctx, file)
	if err != nil {
		return err
	}
	*s = patchedState{gone: true, late: true}
	p.last = append(p.last, step{do: func(ctx context.Context) error { return do(ctx, p.to, "rm", args{"path": file}) }})
	return nil
}

func (p *plan) move(ctx context.Context, from, to string) (replaces bool, err error) {
	s, err := p.existing(ctx, from)
	if err != nil {
		return false, err
	}
	target, err := p.place(ctx, to)
	if err != nil {
		return false, err
	}
	if replaces = !target.gone; replaces { // it is removed once the other file is there
		p.ask(target)
		aside := beside(to)
		p.then(target, step{do: p.renaming(to, aside), undo: p.renaming(aside, to)})
		p.last = append(p.last, step{do: func(ctx context.Context) error { return do(ctx, p.to, "rm", args{"path": aside}) }})
	}
	late := s.late || target.late
	*target = patchedState{text: s.text, from: s.from, late: late}
	*s = patchedState{gone: true, late: late}
	p.then(target, step{do: p.renaming(from, to), undo: p.renaming(to, from)})
	return replaces, nil
}

// update changes the text of a file, if the part has chunks.
func (p *plan) update(ctx context.Context, f filePatch) error {
	s, err := p.existing(ctx, f.path)
	if err != nil || len(f.chunks) == 0 {
		return err
	}
	if s.text == nil {
		whole, err := readWhole(ctx, p.to, s.from)
		if err != nil {
			return err
		}
		s.text = &whole
	}
	c, err := f.update(*s.text)
	if err != nil {
		return err
	}
	*s.text = c.whole()
	if s.from == "" {
		return nil
	}
	p.change(s, c)
	return nil
}

func (p *plan) change(s *patchedState, c change) {
	p.then(s, step{
		do:   func(ctx context.Context) error { return c.apply(ctx, p.to) },
		undo: func(ctx context.Context) error { return c.reverse().apply(ctx, p.to) },
	})
}
