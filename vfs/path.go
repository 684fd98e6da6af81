package vfs

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/glob"
	"github.com/wisbox/wisbox/internal/pathname"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxPath       = 4_096 // bytes, before anything is looked at
	maxSegments   = 16
	maxSegment    = 80  // characters
	maxAnySegment = 255 // bytes: what the kernel's file systems take
	mountName     = "workspace"
)

// Grammar says which paths the tools take. The zero value is [ASCII].
type Grammar string

const (
	// ASCII takes printable ASCII, segments of at most 80 characters.
	ASCII Grammar = "ascii"
	// Any takes UTF-8 without control characters and invisible ones, segments of at
	// most 255 bytes. It normalises nothing: a path names the file of the same bytes.
	Any Grammar = "any"
)

// ParsePath is [Grammar.Parse] of [ASCII].
func ParsePath(s string) (string, error) { return ASCII.Parse(s) }

// Parse reads a path as agents write it and gives it relative to the
// workspace, clean and slash-separated; "" is the workspace itself. A leading
// "/", "/workspace/" or "workspace/" is stripped, "//" collapses, blanks around
// a segment are trimmed. The error is a *tool.Error of kind invalid; the caller
// adds the field.
func (g Grammar) Parse(s string) (string, error) {
	segments, err := g.segmentsOf(s)
	if err != nil {
		return "", err
	}
	if len(segments) > 0 && segments[0] == mountName {
		segments = segments[1:]
	}
	return g.checked(segments)
}

// clean reads a path that a Go caller gives: as Parse, but a relative one
// is taken at its word, so what Parse gave stays what it is.
func (g Grammar) clean(s string) (string, error) {
	if strings.HasPrefix(strings.TrimLeft(s, " "), "/") {
		return g.Parse(s)
	}
	segments, err := g.segmentsOf(s)
	if err != nil {
		return "", err
	}
	return g.checked(segments)
}

// parseFile is Parse for what must not be the workspace itself.
func (g Grammar) parseFile(s string) (string, error) { return notTop(g.Parse(s)) }

// compile reads a pattern of names.
func (g Grammar) compile(pattern string) (*glob.Pattern, error) {
	if g == Any {
		return glob.CompileText(pattern)
	}
	return glob.Compile(pattern)
}

// takes reports whether the characters of s may stand in a path.
func (g Grammar) takes(s string) bool {
	if g == Any {
		return pathname.Text(s)
	}
	return pathname.ASCII(s)
}

func (g Grammar) maxSegment() int {
	if g == Any {
		return maxAnySegment
	}
	return maxSegment
}

func notTop(rel string, err error) (string, error) {
	if err == nil && rel == "" {
		err = tool.Errorf(tool.Invalid, "the path is the workspace itself; name something in it")
	}
	return rel, err
}

func (g Grammar) segmentsOf(s string) ([]string, error) {
	if len(s) > maxPath {
		return nil, tool.Errorf(tool.Invalid, "the path has %d characters; at most %d segments of %d are taken", utf8.RuneCountInString(s), maxSegments, g.maxSegment())
	}
	if !g.takes(s) {
		return nil, tool.Errorf(tool.Invalid, "the path holds %s", g.refused())
	}
	var segments []string
	for part := range strings.SplitSeq(s, "/") {
		if part = strings.Trim(part, " "); part != "" {
			segments = append(segments, part)
		}
	}
	return segments, nil
}

func (g Grammar) refused() string {
	if g == Any {
		return "a control character, an invisible one, or bytes that are not UTF-8"
	}
	return "a character that is not printable ASCII; a session with the option paths=any takes it, and so do programs"
}

func (g Grammar) checked(segments []string) (string, error) {
	if len(segments) > maxSegments {
		return "", tool.Errorf(tool.Invalid, "the path has %d segments; at most %d are taken", len(segments), maxSegments)
	}
	for _, s := range segments {
		if s == "." || s == ".." {
			return "", tool.Errorf(tool.Invalid, "the path has the segment %q; write it out from the workspace's top", s)
		}
		if len(s) > g.maxSegment() {
			return "", tool.Errorf(tool.Invalid, "a segment of the path has %d bytes; at most %d are taken", len(s), g.maxSegment())
		}
	}
	return strings.Join(segments, "/"), nil
}

// Display is [Grammar.Display] of [ASCII].
func Display(rel string) string { return ASCII.Display(rel) }

// Display is a path of the workspace as results show it: relative, but "/" for
// the workspace itself and absolute where [Grammar.Parse] would strip a directory
// that is really called workspace. Characters that no path may hold are escaped
// as in a Go string, and so are backslashes beside them, so that no two such names look the
// same. A file whose name has the very characters of an escape looks like one of them.
func (g Grammar) Display(rel string) string {
	if rel == "" {
		return "/"
	}
	shown := g.escape(rel)
	if first, _, _ := strings.Cut(shown, "/"); first == mountName {
		return Mount + "/" + shown
	}
	return shown
}

// escape makes names that a program has chosen fit for one line of text: each segment by
// itself, so that those above one that can't be addressed still lead to it.
func (g Grammar) escape(names string) string {
	if g.takes(names) {
		return names
	}
	segments := strings.Split(names, "/")
	for i, s := range segments {
		segments[i] = g.escapeSegment(s)
	}
	return strings.Join(segments, "/")
}

func (g Grammar) escapeSegment(name string) string {
	if g.takes(name) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		if g.takes(name[i:i+size]) && r != utf8.RuneError && r != '\\' {
			b.WriteString(name[i : i+size])
		} else {
			quoted := strconv.QuoteToASCII(name[i : i+size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
