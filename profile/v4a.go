package profile

import (
	"regexp"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
	"sync"
)

// filePatch is the part of a V4A patch for one file.
type filePatch struct {
	action string // add, update, delete
	path   string
	moveTo string
	lines  []string // of an added file
	chunks []chunk
}

// chunk is one changed place of an update.
type chunk struct {
	headers []string // lines to find first, each after the one before
	lines   []patchLine
	atEnd   bool // the old lines are the last of the file
}

type patchLine struct {
	kind byte // ' ', '+', '-'
	text string
}

// old returns the lines that the chunk must find.
func (c chunk) old() []string {
	var out []string
	for _, l := range c.lines {
		if l.kind != '+' {
			out = append(out, l.text)
		}
	}
	return out
}

var fileHeads = map[string]string{"*** Add File: ": "add", "*** Update File: ": "update", "*** Delete File: ": "delete"}

// heredoc matches the first line of a patch that is wrapped for a shell.
var heredoc = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:apply_?patch\s*)?<<-?\s*['"]?(\w+)['"]?$`) })

// parsePatch parses a patch, from the line "*** Begin Patch" to "*** End Patch". With padded, a line of an update that is a
// header after its leading blanks is one; without, it is a context line.
func parsePatch(text string, padded bool) ([]filePatch, error) {
	text = strings.TrimPrefix(text, byteOrderMark)
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\r\n", "\n"), "\n")
	skipped := 0
	if found := heredoc().FindStringSubmatch(lines[0]); found != nil && len(lines) > 2 && strings.HasSuffix(lines[len(lines)-1], found[1]) {
		lines, skipped = lines[1:len(lines)-1], 1
	}
	if len(lines) < 2 || strings.TrimSpace(lines[0]) != "*** Begin Patch" || strings.TrimSpace(lines[len(lines)-1]) != "*** End Patch" {
		return nil, badPatch(0, `a patch begins with the line "*** Begin Patch" and ends with "*** End Patch"`)
	}
	p := &patchParser{padded: padded}
	for i, line := range lines[1 : len(lines)-1] {
		if err := p.take(line); err != "" {
			return nil, badPatch(i+2+skipped, err)
		}
	}
	for _, f := range p.files {
		if f.action == "update" && len(f.chunks) == 0 && f.moveTo == "" {
			return nil, badPatch(0, "the update of "+f.path+" changes nothing")
		}
	}
	if len(p.files) == 0 {
		return nil, badPatch(0, "the patch names no file")
	}
	return p.files, nil
}

func badPatch(line int, why string) error {
	if line > 0 {
		return tool.Errorf(tool.Invalid, "line %d of the patch: %s", line, why).In("input")
	}
	return tool.Errorf(tool.Invalid, "%s", why).In("input")
}

type patchParser struct {
	padded bool
	files  []filePatch
	blank  int  // blank lines of an added file, which count if an added line follows
	ended  bool // the chunk is complete; the next line begins another one
}

// take parses one line, and returns the problem if it is invalid.
func (p *patchParser) take(line string) string {
	var f *filePatch
	if len(p.files) > 0 {
		f = &p.files[len(p.files)-1]
	}
	head := strings.TrimSpace(line)
	if f != nil && f.action == "update" && !p.padded {
		head = strings.TrimRight(line, " \t")
	}
	for begin, action := range fileHeads {
		if path, ok := strings.CutPrefix(head, begin); ok {
			return p.begin(action, path)
		}
	}
	switch {
	case f == nil && (head == "" || strings.HasPrefix(head, "*** Environment ID:")):
		return ""
	case f == nil:
		return `it must begin a file: "*** Add File: PATH", "*** Update File: PATH" or "*** Delete File: PATH"`
	case f.action == "add":
		return p.takeAdded(f, line)
	case f.action == "delete" && head != "":
		return "a deleted file has no lines"
	case f.action == "update":
		return p.takeUpdate(f, line, head)
	}
	return ""
}

func (p *patchParser) begin(action, path string) string {
	path = strings.TrimSpace(path)
	for strings.HasPrefix(path, "./") {
		path = strings.TrimLeft(path[1:], "/")
	}
	if path == "" {
		return "the path is empty"
	}
	p.files, p.ended, p.blank = append(p.files, filePatch{action: action, path: path}), true, 0
	return ""
}

func (p *patchParser) takeAdded(f *filePatch, line string) string {
	if strings.TrimSpace(line) == "" {
		p.blank++
		return ""
	}
	text, ok := strings.CutPrefix(line, "+")
	if !ok {
		return "each line of an added file begins with +"
	}
	f.lines = append(append(f.lines, make([]string, p.blank)...), text)
	p.blank = 0
	return ""
}

func (p *patchParser) takeUpdate(f *filePatch, line, head string) string {
	if to, ok := strings.CutPrefix(head, "*** Move to: "); ok && len(f.chunks) == 0 {
		f.moveTo = strings.TrimPrefix(strings.TrimSpace(to), "./")
		return ""
	}
	if header, ok := strings.CutPrefix(head, "@@"); ok {
		c := p.next(f, len(f.chunks) > 0 && len(f.chunks[len(f.chunks)-1].lines) > 0)
		if header = strings.TrimPrefix(header, " "); header != "" {
			c.headers = append(c.headers, header)
		}
		return ""
	}
	if head == "*** End of File" && !p.ended {
		f.chunks[len(f.chunks)-1].atEnd, p.ended = true, true
		return ""
	}
	if strings.TrimSpace(line) == "" && p.ended { // between chunks
		return ""
	}
	if line == "" { // a blank context line that lost its leading blank
		line = " "
	}
	if !slices.Contains([]byte{' ', '+', '-'}, line[0]) {
		return `a line of an update begins with "+", "-", a blank or "@@"`
	}
	c := p.next(f, false)
	c.lines = append(c.lines, patchLine{line[0], line[1:]})
	return ""
}

// next returns the chunk for a line, a new one if necessary.
func (p *patchParser) next(f *filePatch, fresh bool) *chunk {
	if fresh || p.ended || len(f.chunks) == 0 {
		f.chunks, p.ended = append(f.chunks, chunk{}), false
	}
	return &f.chunks[len(f.chunks)-1]
}
