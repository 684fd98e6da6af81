package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"
)

// FileSystem is a [Sandbox] that gives access to its files from inside, with exactly the rights
// of its programs: it reaches the same files as a program, including /tmp, and no others. Paths
// are absolute and have at most 4096 bytes, any but NUL; links in them are followed as by a
// program. Many operations may run at the same time; if there are too many, they wait.
//
// Errors wrap [fs.ErrNotExist], [fs.ErrExist], [fs.ErrPermission] and the like if the kernel
// reports these, or [ErrNotRegular], [ErrFileLimit], [ErrInterrupted], or the errors of the
// package. Names and sizes come from the sandbox: only their form is checked. An operation ends
// at once with ctx.
type FileSystem interface {
	// Stat describes a file.
	Stat(ctx context.Context, path string, opts StatOptions) (FileInfo, error)
	// List calls each for every file below a directory, depth first, by name, and a directory
	// before its files. It doesn't follow links. It leaves out files that vanish meanwhile,
	// and the files of unreadable directories. An error of each ends it.
	List(ctx context.Context, path string, opts ListOptions, each func(FileInfo) error) error
	// Open opens a file for reading. It never waits for the other end of a pipe.
	Open(ctx context.Context, path string, opts OpenOptions) (FileReader, error)
	// Write copies r to a file. It waits for a pending Read of r, even if ctx ends.
	Write(ctx context.Context, path string, r io.Reader, opts WriteOptions) error
	// Move renames a file or directory. Between file systems it copies files and links, and
	// refuses directories.
	Move(ctx context.Context, from, to string, opts MoveOptions) error
	// Remove removes a file, an empty directory, or with Recursive a whole directory. It
	// doesn't follow links. A file that doesn't exist is an error. An
	// interrupted removal may leave directories from below at its top, as ".wisbox-removed-1".
	Remove(ctx context.Context, path string, opts RemoveOptions) error
	// Mkdir creates a directory, which must not exist.
	Mkdir(ctx context.Context, path string, opts MkdirOptions) error
	// Chmod sets a file's permissions.
	Chmod(ctx context.Context, path string, mode fs.FileMode) error
	// Watch reports the changes below a directory from its return on, except for names that
	// begin with ".wisbox-". Only a few watches can be open: one more is ErrFileLimit.
	Watch(ctx context.Context, path string, opts WatchOptions) (FileWatch, error)
}

// Errors of a [FileSystem].
var (
	ErrNotRegular  = errors.New("not a regular file")
	ErrFileLimit   = errors.New("limit of the file operation reached")     // earlier effects and results stay
	ErrInterrupted = errors.New("file operation ended inside the sandbox") // by a program or a limit: its progress is unknown
)

// FileInfo describes a file of a sandbox.
type FileInfo struct {
	Path     string // as requested; in a listing, relative to the directory
	Mode     fs.FileMode
	Size     int64
	Modified time.Time
	UID, GID int
	Link     string            // the text of a symbolic link
	Real     string            // the file that the link leads to, absolute; "" if there is none
	RealMode fs.FileMode       // of that file
	Attrs    map[string]string // extended attributes ("user.…"), if requested
}

// StatOptions are options of Stat.
type StatOptions struct {
	Follow bool // follow links
	Attrs  bool // with extended attributes
}

// ListOptions are options of List.
type ListOptions struct {
	Depth int // levels, default 1
	// Limit is the number of entries, default and maximum 1,000,000; more is ErrFileLimit
	// after the last one. So are more names than fit in 16 MiB at a time, and paths that are
	// too long.
	Limit int
	Attrs bool // with extended attributes
}

// OpenOptions are options of Open.
type OpenOptions struct {
	Offset int64
	Length int64 // at most; 0 means to the end
	Any    bool  // allow devices and pipes; a pipe is read as far as it is filled now
}

// FileReader is an open file. The caller closes it, and uses it from one goroutine. io.EOF
// means that the process in the sandbox reached the file's end, never that the process ended.
type FileReader interface {
	io.ReadCloser
	// Info describes the file as it was opened.
	Info() FileInfo
}

// WriteMode is a way to write a file.
type WriteMode string

const (
	// WriteReplace writes a file beside the target (".wisbox-…") and renames it: readers see the
	// old or the new file. An interrupted write may leave its file; the next write to the path
	// removes it. A link stays, and the file that it leads to is replaced.
	WriteReplace WriteMode = "replace"
	// WriteInPlace truncates and writes; WriteAppend adds to the end.
	WriteInPlace WriteMode = "in_place"
	WriteAppend  WriteMode = "append"
	// WriteSeveral replaces several files, or none: r is what [Several] returns, and the path is
	// "/". An error with a *fs.PathError names the file. An interrupted write may leave a directory
	// ".wisbox-several-…" beside the first file; the next one there removes it.
	WriteSeveral WriteMode = "several"
)

// WriteOptions are options of Write.
type WriteOptions struct {
	How       WriteMode         // default WriteReplace
	Mode      fs.FileMode       // permissions; 0 means those of the existing file, or 0644
	Parents   bool              // make missing directories, with 0755
	Exclusive bool              // the file must not exist
	Attrs     map[string]string // extended attributes to set ("user.…")
}

// MoveOptions are options of Move.
type MoveOptions struct {
	Parents   bool // make missing directories, with 0755
	Exclusive bool // nothing is replaced
}

// RemoveOptions are options of Remove.
type RemoveOptions struct {
	Recursive bool
	Limit     int // files and directories, default and maximum 10,000,000; more is ErrFileLimit
}

// MkdirOptions are options of Mkdir.
type MkdirOptions struct {
	Parents bool
	Mode    fs.FileMode // permissions, default 0755
}

// WatchOptions are options of Watch.
type WatchOptions struct {
	Recursive bool // include directories below, also new ones
	Limit     int  // directories, default and maximum 8192; more is ErrFileLimit
}

// FileWatch is an open watch. It ends with its ctx, with Close, or with the directory.
type FileWatch interface {
	// Next waits for the next change. It returns io.EOF after the directory itself was
	// removed and no program has it open any more. It is for one goroutine; Close ends it.
	Next() (FileEvent, error)
	Close() error
}

// FileChange is the kind of a change to a file.
type FileChange string

// Kinds of changes. Changes of several files keep their order. One event may stand for several
// equal changes in a row.
const (
	FileCreated     FileChange = "created" // or moved here
	FileWritten     FileChange = "written"
	FileRemoved     FileChange = "removed"
	FileRenamed     FileChange = "renamed" // moved away from this name
	FileModeChanged FileChange = "mode"    // or owner, times, attributes
	FilesLost       FileChange = "lost"    // there were too many changes at once: list the directory again
)

// FileEvent is a change to one file.
type FileEvent struct {
	Change FileChange
	Name   string // relative to the directory; "" means the directory itself
	Dir    bool
}
