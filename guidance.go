package wisbox

import (
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
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/vfs"
)

const (
	aboutWorkspace = `The tools work on one workspace: a directory that programs see as /workspace. Paths are relative to it.`
	aboutPrograms  = `Programs have no network, run as an ordinary user, and have limits on memory, processes and time`
	aboutStatus    = aboutPrograms + `: a status other than "exited" says which one was hit.`
	aboutSteps     = `Each call that changes the workspace can be undone: your user can take it back.`
	aboutRollback  = `A call that fails leaves the workspace as it was before it.`
)

// Guidance tells a model how the tools of a profile go together. Of those that it
// knows from its training it says only where they work.
func Guidance(profile string) string {
	if !ownNames(profile) {
		return aboutWorkspace + "\n" + aboutPrograms + "."
	}
	return strings.Join([]string{
		aboutWorkspace, vfs.About, shelltool.About, aboutStatus, evaltool.About, lisp.About, snapshot.About, digest.About, rlm.About,
	}, "\n")
}

// ownNames says that a profile's tools have wisbox's own names.
func ownNames(profile string) bool {
	return slices.Contains([]string{"", "wisbox", "vfs"}, profile)
}

// Guidance is what a model should read of this session beside the tools'
// descriptions, as Markdown for a prompt: how the tools go together, what each
// engine offers, what the session's settings mean for it, and what was mounted,
// with the first 20 entries of each mount as they are now.
func (s *Session) Guidance() (string, error) { return s.GuidanceAs(s.opts.Profile) }

// GuidanceAs is Guidance for a client that has this session's tools in another
// profile.
func (s *Session) GuidanceAs(profile string) (string, error) {
	var b strings.Builder
	b.WriteString("# Tools\n\n" + Guidance(profile) + "\n")
	if s.opts.AutoSnapshot {
		b.WriteString(aboutSteps + "\n")
	}
	if s.opts.RollbackOnFailure {
		b.WriteString(aboutRollback + "\n")
	}
	if ownNames(profile) {
		if err := s.m.aboutEngines(&b); err != nil {
			return "", err
		}
	}
	if len(s.opts.Mounts) > 0 {
		b.WriteString("\n# Copied in from the host\n\n")
		files := s.Files()
		for _, m := range s.opts.Mounts {
			preview(&b, files, m)
		}
	}
	return b.String(), nil
}

func (m *Manager) aboutEngines(b *strings.Builder) error {
	engine, err := m.wasmEngine()
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n# Python\n\n%s\n%s\n", new(python.Engine).Guidance(), engine.Session(nil).Guidance())
	fmt.Fprintf(b, "\n# Lisp\n\n%s\n", new(lisp.Lisp).Guidance())
	return nil
}

const previewEntries = 20

// preview lists the first entries of a mount. What a program has put in their
// place, or taken away, is said and harms nothing.
func preview(b *strings.Builder, files fs.FS, m hostmount.Mount) {
	at, err := vfs.ParsePath(m.MountPath)
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

// firstNames are those of a directory's first entries, directories with a slash;
// a file has none.
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
