package digest

import (
	"bytes"
	"io"
	"path"
	"strings"

	"github.com/wisbox/wisbox/internal/budget"
)

// part is a directory with its own project, and its budget.
type part struct {
	*survey
	dir string // "." for the top
	b   *budget.Budget
}

// detect finds the commands of a project. Each detector returns only commands that should work according to the files:
// existing targets, and configured tools.
func (s *survey) detect(dir string) []Command {
	p := &part{survey: s, dir: dir, b: s.b.Part(project)}
	defer p.b.Close()
	var out []Command
	for _, detect := range []func() []Command{p.makeCommands, p.pythonCommands, p.goCommands, p.nodeCommands, p.otherCommands} {
		out = append(out, detect()...)
	}
	for i := range out {
		out[i].dir, out[i].local = dir, out[i].Line
		out[i].Line = in(dir, out[i].Line)
	}
	s.cut = s.cut || p.b.Check() != nil
	return out
}

// in returns the form of a command for the top directory.
func in(dir, line string) string {
	if dir == "." {
		return line
	}
	for _, program := range []string{"make", "go"} {
		if rest, ok := strings.CutPrefix(line+" ", program+" "); ok {
			return strings.TrimSpace(program + " -C " + dir + " " + rest)
		}
	}
	return "(cd " + dir + " && " + line + ")"
}

// own returns the first of the names that the project's directory has, or "".
func (p *part) own(names ...string) string { return p.first(p.dir, names...) }

// text reads the first of the named files that the project's directory has.
func (p *part) text(names ...string) string { return p.read(p.b, p.own(names...)) }

// hasDir reports whether the project's directory has a directory of that name.
func (p *part) hasDir(name string) bool { return p.dirs[path.Join(p.dir, name)] }

// read returns the beginning of a text file, "" for anything else. Its bytes are charged to b until b is closed.
func (s *survey) read(b *budget.Budget, name string) string {
	if name == "" || !s.has(name) || b.Step(1) != nil {
		return ""
	}
	f, err := s.fsys.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	size := int(min(max(info.Size(), 0), maxRead))
	if b.Hold(2*size) != nil || b.Step(size/stepBytes) != nil {
		return ""
	}
	if info.Size() > maxRead {
		s.partly = append(s.partly, name)
	}
	text := make([]byte, size)
	n, err := io.ReadFull(f, text)
	if err != nil && err != io.ErrUnexpectedEOF || bytes.IndexByte(text[:n], 0) >= 0 { //nolint:errorlint // never wrapped
		return ""
	}
	return string(text[:n])
}
