package hostmount

import (
	"strings"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/pathname"
	"github.com/wisbox/wisbox/tool"
)

// Mount is one source and where it goes.
type Mount struct {
	// HostPath is a file or directory on the host, in UTF-8 without control and
	// invisible characters: absolute and below an allowed root, or relative to one (the first that has it).
	HostPath string `json:"host_path"`
	// MountPath is a path in the workspace, of the grammar any of package vfs. A directory's
	// content goes below it; a file gets this name, or goes below it under its
	// own name where MountPath ends in "/" or is the root. "." is the
	// workspace's root; "" is the path that the source has below its allowed root.
	MountPath string `json:"mount_path,omitempty"`
	// Include, if not empty, are globs of which a file must match one; Exclude
	// are globs of which no file and no directory above it may match any. They
	// match the path below the source, without a "/" the last name.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// MaxBytes is this mount's own budget; 0 is what is left of the total.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// FollowSymlinks copies what links point to where that lies in the same
	// source. Otherwise a link is copied as a link where its text is relative and leads
	// nowhere above the source; others are skipped and counted.
	FollowSymlinks bool `json:"follow_symlinks,omitempty"`
}

// Parse reads the form of the command line:
//
//	HOST[:DEST][,include=GLOB]…[,exclude=GLOB]…[,max-bytes=N][,follow-symlinks]
//
// DEST is what follows the last colon of the first part, so a host path with a
// colon needs a DEST or a colon at its end ("/a:b:"). Without DEST the
// MountPath is ".": a directory's content, or a file, goes to the workspace's
// root. A comma within braces does not separate ("include=*.{c,h}"); a host path
// with another comma can't be written this way. N is a number of bytes, or a
// size such as 64MiB. A relative host path stays relative: what it is relative
// to is the caller's to say.
func Parse(spec string) (Mount, error) {
	parts := splitOptions(spec)
	m := Mount{HostPath: parts[0], MountPath: "."}
	if i := strings.LastIndexByte(parts[0], ':'); i >= 0 {
		m.HostPath, m.MountPath = parts[0][:i], parts[0][i+1:]
		if m.MountPath == "" {
			m.MountPath = "."
		}
	}
	for _, option := range parts[1:] {
		if err := m.option(option); err != nil {
			return Mount{}, err
		}
	}
	if err := m.check("mount"); err != nil {
		return Mount{}, err
	}
	return m, nil
}

// splitOptions splits at the commas that stand outside of braces.
func splitOptions(spec string) []string {
	var parts []string
	depth, from := 0, 0
	for i := range len(spec) {
		switch spec[i] {
		case '{':
			depth++
		case '}':
			depth = max(depth-1, 0)
		case ',':
			if depth == 0 {
				parts, from = append(parts, spec[from:i]), i+1
			}
		}
	}
	return append(parts, spec[from:])
}

func (m *Mount) option(option string) error {
	name, value, given := strings.Cut(option, "=")
	switch {
	case name == "include" && value != "":
		m.Include = append(m.Include, value)
	case name == "exclude" && value != "":
		m.Exclude = append(m.Exclude, value)
	case name == "follow-symlinks" && !given:
		m.FollowSymlinks = true
	case name == "max-bytes" && m.MaxBytes == 0:
		n, err := units.RAMInBytes(value)
		if err != nil || n <= 0 {
			return invalid("mount", "max-bytes takes a number of bytes or a size such as 64MiB, more than zero")
		}
		m.MaxBytes = n
	default:
		return invalid("mount", "the options of a mount are include=GLOB, exclude=GLOB, max-bytes=N (once) and follow-symlinks")
	}
	return nil
}

// check looks at what needs no file system; at names the mount.
func (m Mount) check(at string) error {
	if m.HostPath == "" {
		return invalid(at+".host_path", "a mount needs a host path")
	}
	if !pathname.Text(m.HostPath) {
		return invalid(at+".host_path", "a host path is UTF-8 without control characters and invisible ones")
	}
	if m.MaxBytes < 0 {
		return invalid(at+".max_bytes", "max_bytes is more than zero, or 0 for what is left of the total")
	}
	if m.MountPath != "" {
		if _, err := mountPath(m.MountPath, at); err != nil {
			return err
		}
	}
	_, err := m.filter(at)
	return err
}

const (
	maxSegments = 16
	maxSegment  = 255 // bytes, as the kernel has it
)

// mountPath is the path of the tools' grammar without its prefix; "" is the root.
func mountPath(s, at string) (string, error) {
	at += ".mount_path"
	if !pathname.Text(s) {
		return "", invalid(at, "a path in the workspace is UTF-8 without control characters and invisible ones")
	}
	var segments []string
	prefixed := false
	for segment := range strings.SplitSeq(s, "/") {
		switch segment = strings.TrimSpace(segment); {
		case segment == "" || segment == "." && s == ".":
			continue
		case segment == "." || segment == "..":
			return "", invalid(at, `a path in the workspace has no "." or ".." segment; "." alone is its root`)
		case len(segment) > maxSegment:
			return "", invalid(at, "a segment of a path has at most %d bytes", maxSegment)
		case segment == "workspace" && len(segments) == 0 && !prefixed:
			prefixed = true
			continue
		}
		segments = append(segments, segment)
	}
	if len(segments) > maxSegments {
		return "", invalid(at, "a path in the workspace has at most %d segments", maxSegments)
	}
	return strings.Join(segments, "/"), nil
}

func invalid(field, format string, args ...any) error {
	return tool.Errorf(tool.Invalid, format, args...).In(field)
}
