package vfs

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// Transfer lists what Import or Export moved and what it skipped.
type Transfer struct {
	Files       int       `json:"files"`
	Directories int       `json:"directories"`
	Links       int       `json:"links"`
	Bytes       int64     `json:"bytes"`             // of the files
	Skipped     []Skipped `json:"skipped,omitempty"` // the first 1,000
	More        int       `json:"more,omitempty"`    // skipped beyond those
	// Incomplete counts the skipped files and directories that could have been moved but for an error or
	// a limit. The others are left out by design: devices, links that lead out.
	Incomplete int `json:"incomplete,omitempty"`
}

// Skipped is an entry that was left out.
type Skipped struct {
	Name   string `json:"name"` // escaped if it is not printable ASCII
	Reason string `json:"reason"`
}

const (
	maxSkipped     = 1_000
	maxSkippedName = 2_000 // characters: deep below, a path has more than any tool takes
)

func (t *Transfer) skip(name, reason string) {
	if len(t.Skipped) == maxSkipped {
		t.More++
		return
	}
	short, _ := firstChars(ASCII.escape(name), maxSkippedName)
	t.Skipped = append(t.Skipped, Skipped{Name: short, Reason: reason})
}

// lack skips an entry whose absence makes the copy incomplete.
func (t *Transfer) lack(name, reason string) {
	t.Incomplete++
	t.skip(name, reason)
}

// reasonOf describes in a few words why an entry was skipped.
func reasonOf(err error) string {
	switch e := fail(err, ""); {
	case errors.Is(err, fs.ErrPermission):
		return "is not accessible"
	case tool.KindOf(e) == tool.Escape:
		return "leads out of the workspace"
	case beneath.Leased(err):
		return "is held by a program (a lease on the file)"
	case errors.Is(err, unix.ENAMETOOLONG):
		return "lies too deep, or its name is too long"
	default:
		return "is in the way or was changed meanwhile: " + string(tool.KindOf(e))
	}
}

// fatal reports whether an error would also fail all further entries.
func fatal(err error) bool {
	switch tool.KindOf(fail(err, "")) {
	case tool.NoSpace, tool.Limit, tool.Invalid, tool.Closed, tool.Timeout, tool.Busy, tool.Unsupported, tool.Internal, tool.Unavailable:
		return true
	}
	return false
}

// linkInside returns the path below the workspace to which a link's text leads lexically; from is
// the link's own path. It returns false for a link that leaves.
func linkInside(from, text string) (string, bool) {
	if strings.HasPrefix(text, "/") {
		rest, ok := strings.CutPrefix(text, Mount)
		if !ok || rest != "" && rest[0] != '/' {
			return "", false
		}
		from, text = "", strings.TrimLeft(rest, "/")
	}
	if climbsLate(text) {
		return "", false
	}
	to := path.Join(path.Dir(from), text)
	if to == ".." || strings.HasPrefix(to, "../") {
		return "", false
	}
	return strings.TrimPrefix(to, "./"), true
}

// climbsLate reports whether a ".." follows a name. It may then lead elsewhere, because the name
// may be a link.
func climbsLate(text string) bool {
	names := false
	for part := range strings.SplitSeq(text, "/") {
		switch part {
		case "", ".":
		case "..":
			if names {
				return true
			}
		default:
			names = true
		}
	}
	return false
}
