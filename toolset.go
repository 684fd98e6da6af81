package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/lisp"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/journal"
	profiles "github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// ToolSet describes the tools without a session: names, texts and schemas, for listing. Calls of
// its tools fail.
func ToolSet() *tool.Set {
	set, _ := ToolProfile("")
	return set
}

// ToolProfile is like ToolSet with the names and in the shapes that some models were trained on,
// see package profile. An unknown profile is invalid.
func ToolProfile(name string) (*tool.Set, error) {
	// With explicit limits, an invalid limit in the environment doesn't prevent the list.
	engine, err := wasm.New(&wasm.Options{Fuel: wasm.DefaultFuel, Memory: wasm.DefaultMemory})
	if err != nil {
		return nil, err
	}
	return toolsOf(SessionOptions{Profile: name}, engine)
}

// Tools describes the tools of a future session of this manager with these options: their texts
// have the limits of its engines and its own. Calls of these tools fail.
func (m *Manager) Tools(opts *SessionOptions) (*tool.Set, error) {
	o := SessionOptions{}
	if opts != nil {
		o = *opts
	}
	engine, err := m.wasm()
	if err != nil {
		return nil, err
	}
	return toolsOf(o, engine)
}

func toolsOf(o SessionOptions, engine *wasm.Engine) (*tool.Set, error) {
	s, err := describedServices(o, engine)
	if err != nil {
		return nil, err
	}
	set, err := shaped(s.tools(func(context.Context) error { return nil }), o.Profile)
	if err != nil {
		return nil, err
	}
	tools := described(set.Tools())
	for i := range tools {
		tools[i].Description = o.describeNetwork(tools[i].Description)
	}
	return tool.NewSet(tools...), nil
}

// describedServices returns services that can only describe their tools.
func describedServices(o SessionOptions, engine *wasm.Engine) (s *services, err error) {
	s = &services{}
	s.eval, err = evaltool.New(&evaltool.Options{
		Files: s.files, Container: python.New(&python.Options{}), Wasm: engine.Session(nil), MaxCode: o.MaxCode, MaxTimeout: o.MaxEvalTimeout, MaxOutput: o.MaxOutput,
	})
	if err != nil {
		return nil, err
	}
	s.texts, err = rlm.New(&rlm.Options{Eval: engine})
	return s, err
}

// described returns tools that can be listed but not called.
func described(tools []tool.Tool) []tool.Tool {
	out := slices.Clone(tools)
	for i, t := range tools {
		out[i] = t.Via(func(context.Context, json.RawMessage) (*tool.Result, error) {
			return nil, tool.Errorf(tool.Unsupported, "%s is only described here; call it by Session.Call", t.Name)
		})
	}
	return out
}

// Tools describes the session's tools, including the embedder's own. Use [Session.Call] to run
// them, which makes steps and records; calls of these tools fail.
func (s *Session) Tools() *tool.Set {
	base, err := s.m.Tools(&s.opts)
	if err != nil { // the session was opened with it
		base = ToolSet()
	}
	return s.withAdded(base)
}

// Added describes the embedder's own tools, see [Options.Tools]; nil means none.
func (s *Session) Added() *tool.Set {
	if s.extra == nil {
		return nil
	}
	return tool.NewSet(described(s.extra.Tools())...)
}

func (s *Session) withAdded(base *tool.Set) *tool.Set {
	if s.extra == nil {
		return base
	}
	own := slices.DeleteFunc(slices.Clone(base.Tools()), func(t tool.Tool) bool { _, taken := s.extra.Lookup(t.Name); return taken })
	return tool.NewSet(append(own, described(s.extra.Tools())...)...)
}

func (s *Session) lookupExtra(name string) (tool.Tool, bool) {
	if s.extra == nil {
		return tool.Tool{}, false
	}
	return s.extra.Lookup(name)
}

// callExtra runs one of the embedder's own tools and records it here, because no other process
// knows it.
func (s *Session) callExtra(ctx context.Context, t tool.Tool, raw json.RawMessage) (*tool.Result, error) {
	answer, _, err := s.observe(ctx, record{event: journal.ForTool(t.Name, raw), ours: true}, func(ctx context.Context, _ journal.Call) (any, journal.Outcome, error) {
		res, err := t.Call(ctx, raw)
		if err != nil {
			return nil, journal.Outcome{}, err
		}
		return res, journal.Outcome{Failed: res.Failed, Verdict: res.Verdict, Size: len(res.Text), Effects: journal.EffectsOf(res.Changes)}, nil
	})
	if err != nil {
		return nil, err
	}
	return answer.(*tool.Result), nil
}

const (
	aboutWorkspace = `The tools work on one workspace: a directory that programs see as /workspace. Paths are relative to it.`
	aboutHost      = `It starts empty, or with copies of what your user has mounted; the host's own files are never touched. Host directories can't be brought in while the session runs: ask your user to open a session with them.`
	aboutNetwork   = "Programs may connect only to hosts that your user has allowed, by name and never by IP address: %s Other connections are refused; results list them under network_denied, and how your user can allow them. You can't change these rules."
	aboutPrograms  = `Programs have no network, run as an ordinary user, and have limits on memory, processes and time`
	aboutStatus    = aboutPrograms + `: a status other than "exited" says which limit was reached.`
	aboutVersions  = `Results of the file tools give a file's version, a number that grows with each change, whoever made it. snapshot_create returns the snapshot_id that snapshot_restore and snapshot_diff take.`
	aboutCleanUp   = `When you are done, remove files that nobody needs with rm, and end your processes that nobody needs with process_signal KILL.`
	aboutSteps     = `Each call that changes the workspace can be undone: your user can take it back.`
	aboutRollback  = `A failed call leaves the workspace unchanged.`
)

// Guidance explains to a model what the workspace is and how the tools of a profile work together,
// by their names in that profile.
func Guidance(profile string) string { return guidance(profile, func(string) bool { return true }) }

// guidance omits the parts about tools that don't exist.
func guidance(profile string, has func(tool string) bool) string {
	parts := []string{aboutWorkspace, aboutHost}
	if !ownNames(profile) {
		parts = append(parts, aboutPrograms+".", profiles.About(profile))
		return strings.Join(parts, "\n")
	}
	for _, about := range []struct{ tool, text string }{
		{"read_file", vfs.About}, {"shell_execute", shelltool.About}, {"shell_execute", aboutStatus}, {"evaluate_python", evaltool.About}, {"evaluate-lisp", lisp.About},
		{"snapshot_create", snapshot.About}, {"snapshot_create", aboutVersions}, {"workspace_digest", digest.About}, {"context_op", rlm.About}, {"rm", aboutCleanUp},
	} {
		if has(about.tool) {
			parts = append(parts, about.text)
		}
	}
	if more := profiles.About(profile); more != "" {
		parts = append(parts, more)
	}
	return strings.Join(parts, "\n")
}

// GuidanceOf is like Guidance for sessions with these options. It also describes their network
// rules.
func GuidanceOf(o *SessionOptions) string { return o.networked(Guidance(o.Profile)) }

// GuidanceFor is like GuidanceOf for a surface that offers only some of the tools.
func GuidanceFor(o *SessionOptions, set *tool.Set) string {
	return o.networked(guidance(o.Profile, func(name string) bool { _, there := set.Lookup(name); return there }))
}

// networked replaces, in the guidance, the statement that there is no network by the allowed
// connections.
func (o *SessionOptions) networked(guidance string) string {
	guidance += o.aboutServices()
	if !o.rules().Opens() {
		return guidance
	}
	return strings.ReplaceAll(guidance, "Programs have no network, run as", "Programs run as") + "\n" + fmt.Sprintf(aboutNetwork, o.allowed())
}

// describeNetwork does the same in a tool's description.
func (o *SessionOptions) describeNetwork(description string) string {
	if !o.rules().Opens() {
		return description
	}
	return strings.ReplaceAll(description, "There is no network.", "It may connect only to: "+o.allowed()+" network_denied in a result lists refused connections.")
}

// allowed describes the rules in a sentence or two.
func (o *SessionOptions) allowed() string {
	rules := o.rules()
	allowed := slices.Clone(rules.Allow)
	if rules.Record {
		allowed = append(allowed, "public")
	}
	text := strings.Join(allowed, " ") + "."
	if len(rules.Deny) > 0 {
		text += " Denied: " + strings.Join(rules.Deny, " ") + "."
	}
	return text
}

// ownNames reports whether a profile's tools have wisbox's own names.
func ownNames(profile string) bool {
	return slices.Contains([]string{"", "wisbox", "vfs"}, profile)
}

// Guidance returns what a model should know about this session in addition to the tools'
// descriptions, as Markdown for a prompt: how the tools work together and their arguments, the
// features of each engine, the effects of the session's settings, and the mounts, with the first 20
// entries that each has now.
func (s *Session) Guidance() (string, error) { return s.GuidanceAs(s.opts.Profile) }

// GuidanceAs is like Guidance for a client that has this session's tools in another profile.
func (s *Session) GuidanceAs(profile string) (string, error) {
	opts := s.opts
	opts.Profile = profile
	set, err := s.m.Tools(&opts)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Tools\n\n" + s.opts.networked(Guidance(profile)) + "\n")
	if s.opts.AutoSnapshot {
		b.WriteString(aboutSteps + "\n")
	}
	if s.opts.RollbackOnFailure {
		b.WriteString(aboutRollback + "\n")
	}
	b.WriteString("\nTheir arguments (? marks those that may be left out):\n\n" + tool.Outline(s.withAdded(set)))
	if ownNames(profile) {
		if err := s.aboutEngines(&b); err != nil {
			return "", err
		}
	}
	b.WriteString("\n# Copied in from the host\n\n")
	files := s.Files()
	for _, m := range s.opts.Mounts {
		preview(&b, files, m)
	}
	if len(s.opts.Mounts) == 0 {
		b.WriteString("Nothing: what is in the workspace was made in it.\n")
	}
	return b.String(), nil
}

func (s *Session) aboutEngines(b *strings.Builder) error {
	engine, err := s.m.wasm()
	if err != nil {
		return err
	}
	texts, err := describedServices(s.opts, engine)
	if err != nil {
		return err
	}
	for _, part := range []struct{ title, text string }{
		{"Python", texts.eval.Guidance()}, {"Lisp", new(lisp.Lisp).Guidance()}, {"Large texts: operations of context_op", texts.texts.Language()},
	} {
		fmt.Fprintf(b, "\n# %s\n\n%s\n", part.title, strings.TrimSpace(part.text))
	}
	return nil
}

const previewEntries = 20

// preview lists the first entries of a mount. It reports entries that a program has replaced or
// removed.
func preview(b *strings.Builder, files fs.FS, m hostmount.Mount) {
	at, err := vfs.Any.Parse(m.MountPath)
	if err != nil || at == "" {
		at = "."
	}
	names, more, err := firstNames(files, at)
	if err != nil {
		fmt.Fprintf(b, "- `%s`: not there any more\n", at)
		return
	}
	fmt.Fprintf(b, "- `%s`", at)
	for i, name := range names {
		b.WriteString([]string{": ", ", "}[min(i, 1)] + "`" + name + "`")
	}
	if more {
		b.WriteString(" and more")
	}
	b.WriteString("\n")
}

// firstNames returns the names of a directory's first entries, directories with a slash; for a file
// it returns none.
func firstNames(files fs.FS, at string) (names []string, more bool, err error) {
	f, err := files.Open(at)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return nil, false, err
	}
	entries, err := f.(fs.ReadDirFile).ReadDir(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries[:min(len(entries), previewEntries)] {
		name := strings.Trim(strconv.QuoteToASCII(e.Name()), `"`)
		name = strings.ReplaceAll(name, "`", `\x60`)
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return names, len(entries) > previewEntries, nil
}
