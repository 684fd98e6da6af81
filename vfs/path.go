package vfs

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/glob"
	"github.com/wisbox/wisbox/internal/pathname"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxPath       = 4_096 // bytes, before any other check
	maxSegments   = 16
	maxSegment    = 80  // characters
	maxAnySegment = 255 // bytes: the limit of the kernel's file systems
	mountName     = "workspace"
)

// Grammar defines which paths the tools accept. The zero value means [ASCII].
type Grammar string

const (
	// ASCII accepts printable ASCII, in segments of at most 80 characters.
	ASCII Grammar = "ascii"
	// Any accepts UTF-8 without control characters and invisible ones, in segments of at most
	// 255 bytes. It doesn't normalise: a path names the file with exactly the same bytes.
	Any Grammar = "any"
)

// Parse parses a path as agents write it. It returns the path relative to the workspace, clean and
// slash-separated; "" means the workspace itself. It strips a leading "/", "/workspace/" or
// "workspace/" and collapses "//". Blanks are part of a name, except that a name of nothing else is
// invalid. The error is a *tool.Error of kind invalid; the caller adds the field.
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

// clean parses a path of a Go caller. It is like Parse, but takes a relative path literally, so
// that it doesn't change a result of Parse.
func (g Grammar) clean(s string) (string, error) {
	if strings.HasPrefix(s, "/") {
		return g.Parse(s)
	}
	segments, err := g.segmentsOf(s)
	if err != nil {
		return "", err
	}
	return g.checked(segments)
}

// parseFile is like Parse, but refuses the workspace itself.
func (g Grammar) parseFile(s string) (string, error) { return notTop(g.Parse(s)) }

// compile compiles a pattern of names.
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
		err = tool.Errorf(tool.Invalid, "the path is the workspace itself; give a path in it")
	}
	return rel, err
}

func (g Grammar) segmentsOf(s string) ([]string, error) {
	if len(s) > maxPath {
		return nil, tool.Errorf(tool.Invalid, "the path has %d characters; a path has at most %d segments of %d bytes", utf8.RuneCountInString(s), maxSegments, g.maxSegment())
	}
	if !g.takes(s) {
		return nil, tool.Errorf(tool.Invalid, "the path has %s", g.refused())
	}
	var segments []string
	for part := range strings.SplitSeq(s, "/") {
		if part != "" {
			segments = append(segments, part)
		}
	}
	return segments, nil
}

func (g Grammar) refused() string {
	if g == Any {
		return "a control character, an invisible one, or bytes that are not UTF-8"
	}
	return "a character that is not printable ASCII; use a program for this file, or a session with the option paths=any"
}

func (g Grammar) checked(segments []string) (string, error) {
	if len(segments) > maxSegments {
		return "", tool.Errorf(tool.Invalid, "the path has %d segments; the maximum is %d", len(segments), maxSegments)
	}
	for _, s := range segments {
		switch strings.Trim(s, " ") {
		case ".", "..":
			return "", tool.Errorf(tool.Invalid, "the path has the segment %q; give the path from the top of the workspace", s)
		case "":
			return "", tool.Errorf(tool.Invalid, "the path has a segment of nothing but blanks; use a program for such a name")
		}
		if len(s) > g.maxSegment() {
			return "", tool.Errorf(tool.Invalid, "a segment of the path has %d bytes; the maximum is %d", len(s), g.maxSegment())
		}
	}
	return strings.Join(segments, "/"), nil
}

// Display returns a path of the workspace as results show it: relative, but "/" for the workspace
// itself, and absolute if [Grammar.Parse] would strip a directory that is really called workspace.
// Characters that a path may not have are escaped as in a Go string, as are backslashes in the same
// name, so that no two such names look the same. A file whose name has the literal characters of an
// escape does look like one of them.
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

// escape makes names that a program has chosen fit for one line of text. It escapes each segment
// separately, so that the valid segments above an invalid one can still be used.
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

// comparePaths orders paths by their segments, so that what is in a directory follows it: a, a/b, a-b.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
