package vfs

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

const (
	maxPath     = 4_096 // characters, before anything is looked at
	maxSegments = 16
	maxSegment  = 80 // characters
	mountName   = "workspace"
)

// ParsePath reads a path as agents write it and gives it relative to the
// workspace, clean and slash-separated; "" is the workspace itself. A leading
// "/", "/workspace/" or "workspace/" is stripped, "//" collapses, blanks around
// a segment are trimmed. The error is a *tool.Error of kind invalid; the caller
// adds the field.
func ParsePath(s string) (string, error) {
	segments, err := segmentsOf(s)
	if err != nil {
		return "", err
	}
	if len(segments) > 0 && segments[0] == mountName {
		segments = segments[1:]
	}
	return checked(segments)
}

// clean reads a path that a Go caller gives: as [ParsePath], but a relative one
// is taken at its word, so what ParsePath gave stays what it is.
func clean(s string) (string, error) {
	if strings.HasPrefix(strings.TrimLeft(s, " "), "/") {
		return ParsePath(s)
	}
	segments, err := segmentsOf(s)
	if err != nil {
		return "", err
	}
	return checked(segments)
}

// parseFile is [ParsePath] for what must not be the workspace itself.
func parseFile(s string) (string, error) { return notTop(ParsePath(s)) }

func notTop(rel string, err error) (string, error) {
	if err == nil && rel == "" {
		err = tool.Errorf(tool.Invalid, "the path is the workspace itself; name something in it")
	}
	return rel, err
}

func segmentsOf(s string) ([]string, error) {
	if len(s) > maxPath {
		return nil, tool.Errorf(tool.Invalid, "the path has %d characters; at most %d segments of %d are taken", len(s), maxSegments, maxSegment)
	}
	if !isPrintable(s) {
		return nil, tool.Errorf(tool.Invalid, "the path holds a character that is not printable ASCII")
	}
	var segments []string
	for part := range strings.SplitSeq(s, "/") {
		if part = strings.Trim(part, " "); part != "" {
			segments = append(segments, part)
		}
	}
	return segments, nil
}

func checked(segments []string) (string, error) {
	if len(segments) > maxSegments {
		return "", tool.Errorf(tool.Invalid, "the path has %d segments; at most %d are taken", len(segments), maxSegments)
	}
	for _, s := range segments {
		if s == "." || s == ".." {
			return "", tool.Errorf(tool.Invalid, "the path has the segment %q; write it out from the workspace's top", s)
		}
		if len(s) > maxSegment {
			return "", tool.Errorf(tool.Invalid, "a segment of the path has %d characters; at most %d are taken", len(s), maxSegment)
		}
	}
	return strings.Join(segments, "/"), nil
}

func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Display is a path of the workspace as results show it: relative, but "/" for
// the workspace itself and absolute where [ParsePath] would strip a directory
// that is really called workspace. Bytes that no path may hold are escaped as in
// a Go string.
func Display(rel string) string {
	if rel == "" {
		return "/"
	}
	shown := escape(rel)
	if first, _, _ := strings.Cut(shown, "/"); first == mountName {
		return Mount + "/" + shown
	}
	return shown
}

// escape makes a name that a program has chosen fit for one line of text.
func escape(name string) string {
	if isPrintable(name) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		if r >= ' ' && r <= '~' {
			b.WriteByte(name[i])
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
