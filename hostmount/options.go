package hostmount

import (
	"os"
	"strconv"

	"github.com/wisbox/wisbox/sandbox"
)

// Defaults of [Options].
const (
	DefaultMaxBytes = 2 << 30
	DefaultMaxFiles = 200_000
)

// Options configure [Copy] and [Preview]. Preview needs neither Dest nor Staging.
type Options struct {
	// AllowedRoots are the directories below which sources must be; a file allows only itself. Without one every mount
	// is refused. "/", the user's home directory and its parents are refused unless AllowWideRoots is set.
	AllowedRoots   []string
	AllowWideRoots bool

	// Dest is the workspace; Staging is a directory on its file system that programs can't see.
	Dest, Staging *os.Root
	// Owner becomes the owner of the copies; nil means the caller's user.
	Owner *sandbox.Owner

	// MaxBytes is the maximum size of all mounts together, default [DefaultMaxBytes]; MaxFiles is the maximum number of
	// files and directories, default [DefaultMaxFiles]. They are the limits of a session's disk, and errors name them so.
	MaxBytes, MaxFiles int64

	// Progress, if set, is called about ten times a second and at the end, never concurrently. While the sources are looked
	// at, its totals grow and nothing is copied yet.
	Progress func(Progress)
}

// Progress is the progress of a copy.
type Progress struct {
	Files      int64 `json:"files"`
	TotalFiles int64 `json:"total_files"`
	Bytes      int64 `json:"bytes"`
	TotalBytes int64 `json:"total_bytes"`
}

func (o *Options) withDefaults() Options {
	opts := Options{}
	if o != nil {
		opts = *o
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if opts.MaxFiles <= 0 {
		opts.MaxFiles = DefaultMaxFiles
	}
	return opts
}

// Reason is the reason why an entry of a source was not copied.
type Reason string

// The reasons; [Reason.Text] describes them.
const (
	Excluded    Reason = "excluded"
	NotIncluded Reason = "not_included"
	Link        Reason = "link"
	LinkOutside Reason = "link_outside"
	LinkBroken  Reason = "link_broken"
	Special     Reason = "special"
	HardLink    Reason = "hard_link"
	Unreadable  Reason = "unreadable"
	OtherDisk   Reason = "other_filesystem"
	TooDeep     Reason = "too_deep"
	Changed     Reason = "changed"
	GitOutside  Reason = "git_outside"
	GitUnknown  Reason = "git_unknown"
	GitBorrowed Reason = "git_borrowed"
)

var reasons = map[Reason]string{
	Excluded:    "an exclude glob matches it",
	NotIncluded: "no include glob matches it",
	Link:        "it is a symbolic link with an absolute path; follow-symlinks copies its target, if that is in the source",
	LinkOutside: "it is a link that leads out of the source",
	LinkBroken:  "it is a link that leads to nothing, or in a circle",
	Special:     "it is a FIFO, a socket or a device",
	HardLink:    "it has several names (hard links), and another owner than the source",
	Unreadable:  "its mode, or an error of the disk, forbids reading it",
	OtherDisk:   "something is mounted there",
	TooDeep:     "it is more than 512 levels deep, or its path has more than 3,900 bytes",
	GitOutside:  "it is of a linked worktree or a submodule, and the repository's git folder is outside of the allowed roots; without it git finds no repository here",
	GitUnknown:  "it names a git folder that is not there or doesn't name this directory back; without it git finds no repository here (git worktree repair may help)",
	GitBorrowed: "the repository borrows objects of another one, as after git clone --shared, and those are not in the mount, so git fails here; git repack -a -d on the host copies them, then remove that file",
	Changed:     "it was removed or replaced during the copy",
}

// Text returns the reason in words for a person.
func (r Reason) Text() string { return reasons[r] }

// Asked reports whether the mount's own globs excluded the entry.
func (r Reason) Asked() bool { return r == Excluded || r == NotIncluded }

// Entry is one name of a source, as [Preview] lists it.
type Entry struct {
	Path string `json:"path"` // in the workspace
	Kind string `json:"kind"` // file, directory, symlink, or other for skipped entries
	Size int64  `json:"size_bytes"`
	// Skipped is the reason why it is not copied, "" if it is.
	Skipped Reason `json:"skipped,omitempty"`
}

// String returns the entry's path, fit for a terminal: quoted if it isn't plain printable text.
func (e Entry) String() string {
	if quoted := strconv.Quote(e.Path); quoted != `"`+e.Path+`"` {
		return quoted
	}
	return e.Path
}

// Report describes the files copied, or to be copied.
type Report struct {
	Files  int64         `json:"files"` // and links
	Dirs   int64         `json:"directories"`
	Bytes  int64         `json:"bytes"`
	Mounts []MountReport `json:"mounts"`
}

// MountReport is a mount's part of a Report, in the order of the mounts. A file
// that a later mount replaces counts in both.
type MountReport struct {
	MountPath string `json:"mount_path"` // resolved; "" is the workspace's root
	Files     int64  `json:"files"`      // and links
	Dirs      int64  `json:"directories"`
	Bytes     int64  `json:"bytes"`
	// Skipped counts the entries that were not copied, by reason.
	Skipped map[Reason]int64 `json:"skipped,omitempty"`
	// Entries lists all entries for Preview and the skipped ones for Copy, at most 40,000; Truncated reports that there
	// are more.
	Entries   []Entry `json:"entries,omitempty"`
	Truncated bool    `json:"truncated,omitempty"`
	// Fingerprint changes with any path, size, time or mode of the copied files.
	Fingerprint string `json:"fingerprint"`
}
