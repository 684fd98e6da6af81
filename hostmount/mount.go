package hostmount

import (
	"strings"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/pathname"
	"github.com/wisbox/wisbox/tool"
)

// Mount is a source and its destination.
type Mount struct {
	// HostPath is a file or directory on the host, in UTF-8 without control and
	// invisible characters: absolute and below an allowed root, or relative to one (the first that contains it).
	HostPath string `json:"host_path"`
	// MountPath is a path in the workspace, of the grammar any of package vfs. A directory's content is copied below
	// it. A file gets this name, or is copied below it under its own name if MountPath ends in "/" or is the root. "."
	// is the workspace's root; "" means the source's path below its allowed root.
	MountPath string `json:"mount_path,omitempty"`
	// Include, if not empty, lists globs of which a file must match one. Exclude lists globs that neither a file nor a
	// directory above it may match. They match the path below the source, or without a "/" the last name.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// MaxBytes is this mount's own budget; 0 means the rest of the total.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// FollowSymlinks copies the targets of links within the same source. Otherwise a link is copied as a link if its
	// text is relative and doesn't lead out of the source; others are skipped and counted.
	FollowSymlinks bool `json:"follow_symlinks,omitempty"`
	// GitFolders allows to copy the git folders of linked worktrees and submodules in the source from outside of the
	// allowed roots. They must name the source back, and have its owner.
	GitFolders bool `json:"git_folders,omitempty"`
}

// Parse parses the form of the command line:
//
//	HOST[:DEST][,include=GLOB]…[,exclude=GLOB]…[,max-bytes=N][,follow-symlinks]
//
// DEST is a path in the workspace, also with a slash before it. It follows the last colon of the first part, so a host path with a colon needs a
// DEST or a colon at its end ("/a:b:"). Without DEST the MountPath is ".": a
// directory's content, or a file, goes to the workspace's root. A comma within braces
// does not separate ("include=*.{c,h}"); a host path with another comma can't be
// written this way. N is a number of bytes, or a size such as 64MiB. A relative host
// path stays relative; the caller resolves it.
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

// splitOptions splits at commas outside of braces.
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

// check checks the fields without the file system; at names the mount.
func (m Mount) check(at string) error {
	if m.HostPath == "" {
		return invalid(at+".host_path", "the host path is missing; give one")
	}
	if !pathname.Text(m.HostPath) {
		return invalid(at+".host_path", "a host path must be UTF-8 without control characters and invisible ones")
	}
	if m.MaxBytes < 0 {
		return invalid(at+".max_bytes", "max_bytes must be positive, or 0 for the rest of the total")
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
	maxSegment  = 255 // bytes, as in the kernel
)

// mountPath parses a path of the tools' grammar and drops its prefix; "" is the root.
func mountPath(s, at string) (string, error) {
	at += ".mount_path"
	if !pathname.Text(s) {
		return "", invalid(at, "a path in the workspace is UTF-8 without control characters and invisible ones")
	}
	var segments []string
	prefixed := false
	for segment := range strings.SplitSeq(s, "/") {
		switch plain := strings.Trim(segment, " "); {
		case segment == "" || segment == "." && s == ".":
			continue
		case plain == "":
			return "", invalid(at, "a segment of a path in the workspace is not only blanks")
		case plain == "." || plain == "..":
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
