package hostmount

import (
	"os"
	"strconv"
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
	Owner *Owner

	// MaxBytes is the budget of all mounts together, default [DefaultMaxBytes];
	// MaxFiles that of files and directories, default [DefaultMaxFiles].
	MaxBytes, MaxFiles int64

	// Progress, if set, is told how far the copy is, about ten times a second
	// and at the end, never by two goroutines at once.
	Progress func(Progress)
}

// Owner is a host user and group.
type Owner struct{ UID, GID int }

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

const (
	Excluded    Reason = "excluded"         // an exclude glob matches it; of a directory, all below
	NotIncluded Reason = "not_included"     // no include glob matches it
	Link        Reason = "link"             // a symbolic link, and they are not followed
	LinkOutside Reason = "link_outside"     // leads out of the source
	LinkBroken  Reason = "link_broken"      // leads to nothing, or in a circle
	Special     Reason = "special"          // FIFO, socket or device
	HardLink    Reason = "hard_link"        // has other names and another owner than the source
	Unreadable  Reason = "unreadable"       // its mode, or an error of the disk, forbids reading it
	OtherDisk   Reason = "other_filesystem" // something is mounted there
	TooDeep     Reason = "too_deep"         // over 512 levels or 3,900 bytes of path
	Changed     Reason = "changed"          // removed or replaced during the copy
)

// Entry is one name of a source, as [Preview] lists it.
type Entry struct {
	Path string `json:"path"` // in the workspace
	Kind string `json:"kind"` // file, directory, or other for what is skipped unseen
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
	Files  int64         `json:"files"`
	Dirs   int64         `json:"directories"`
	Bytes  int64         `json:"bytes"`
	Mounts []MountReport `json:"mounts"`
}

// MountReport is a mount's part of a Report, in the order of the mounts. A file
// that a later mount replaces counts in both.
type MountReport struct {
	MountPath string `json:"mount_path"` // as it was resolved; "" is the workspace's root
	Files     int64  `json:"files"`
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
