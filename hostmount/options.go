package hostmount

import (
	"os"
	"strconv"

	"github.com/wisbox/wisbox/sandbox"
)

// Defaults of [Options].
const (
	DefaultMaxBytes = 256 << 20
	DefaultMaxFiles = 20_000
)

// Options are what [Copy] and [Preview] work with. Preview needs neither Dest
// nor Staging.
type Options struct {
	// AllowedRoots are the directories below which sources must lie; a file
	// allows itself alone. Without one every mount is refused. "/" and any
	// directory that is or holds the user's home directory are refused unless
	// AllowWideRoots is set.
	AllowedRoots   []string
	AllowWideRoots bool

	// Dest is the workspace; Staging a directory on its file system that no
	// program sees.
	Dest, Staging *os.Root
	// Owner gets all that is copied; nil leaves it to the caller's user.
	Owner *sandbox.Owner

	// MaxBytes is the budget of all mounts together, default [DefaultMaxBytes];
	// MaxFiles that of files and directories, default [DefaultMaxFiles].
	MaxBytes, MaxFiles int64

	// Progress, if set, is told how far the copy is, about ten times a second
	// and at the end, never by two goroutines at once.
	Progress func(Progress)
}

// Progress is how far a copy is.
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

// Reason says why something of a source was not copied.
type Reason string

// The reasons; [Reason.Text] has them in words.
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
)

var reasons = map[Reason]string{
	Excluded:    "an exclude glob matches it",
	NotIncluded: "no include glob matches it",
	Link:        "it is a symbolic link with an absolute path; follow-symlinks copies what it leads to, if that is in the source",
	LinkOutside: "it is a link that leads out of the source",
	LinkBroken:  "it is a link that leads to nothing, or in a circle",
	Special:     "it is a FIFO, a socket or a device",
	HardLink:    "it has other names too, and another owner than the source",
	Unreadable:  "its mode, or an error of the disk, forbids reading it",
	OtherDisk:   "something is mounted there",
	TooDeep:     "it lies over 512 levels deep, or its path has over 3,900 bytes",
	Changed:     "it was removed or replaced during the copy",
}

// Text is the reason in words for a person.
func (r Reason) Text() string { return reasons[r] }

// Asked says that the mount's own globs left something out.
func (r Reason) Asked() bool { return r == Excluded || r == NotIncluded }

// Entry is one name of a source, as [Preview] lists it.
type Entry struct {
	Path string `json:"path"` // in the workspace
	Kind string `json:"kind"` // file, directory, symlink, or other for what is skipped unseen
	Size int64  `json:"size_bytes"`
	// Skipped says why it is not copied; "" where it is.
	Skipped Reason `json:"skipped,omitempty"`
}

// String is the entry's path, fit for a terminal: quoted where a byte of it is not
// plain printable text.
func (e Entry) String() string {
	if quoted := strconv.Quote(e.Path); quoted != `"`+e.Path+`"` {
		return quoted
	}
	return e.Path
}

// Report is what was copied, or would be.
type Report struct {
	Files  int64         `json:"files"` // and links
	Dirs   int64         `json:"directories"`
	Bytes  int64         `json:"bytes"`
	Mounts []MountReport `json:"mounts"`
}

// MountReport is a mount's part of a Report, in the order of the mounts. A file
// that a later mount replaces counts in both.
type MountReport struct {
	MountPath string `json:"mount_path"` // as it was resolved; "" is the workspace's root
	Files     int64  `json:"files"`      // and links
	Dirs      int64  `json:"directories"`
	Bytes     int64  `json:"bytes"`
	// Skipped counts what was not copied, by reason.
	Skipped map[Reason]int64 `json:"skipped,omitempty"`
	// Entries is every entry in Preview, the skipped ones in Copy: at most
	// 40,000; Truncated says that there are more.
	Entries   []Entry `json:"entries,omitempty"`
	Truncated bool    `json:"truncated,omitempty"`
	// Fingerprint changes with any path, size, time or mode of what is copied.
	Fingerprint string `json:"fingerprint"`
}
