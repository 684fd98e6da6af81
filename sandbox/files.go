package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"
)

// FileSystem is a [Sandbox] whose files can be worked on from inside, with exactly the
// rights of its programs: what a program can reach can be reached, /tmp for example, and
// nothing else. Paths are absolute, of at most 4096 bytes, any but NUL; links in them
// are followed as by a program. Many operations may run at the same time; each takes its
// turn if there are too many.
//
// Errors wrap [fs.ErrNotExist], [fs.ErrExist], [fs.ErrPermission] and the like as far as
// the kernel says so, [ErrNotRegular], [ErrFileLimit], [ErrInterrupted], or those of the
// package. Names and sizes come from the sandbox: they have the right form, and nobody
// vouches for more. The end of ctx ends an operation at once, wherever it is.
type FileSystem interface {
	// Stat describes a file.
	Stat(ctx context.Context, path string, opts StatOptions) (FileInfo, error)
	// List gives what a directory holds, depth first, by name, a directory before what
	// is in it. Links are not entered. It leaves out what vanishes meanwhile, and what
	// lies in directories that may not be read. An error of each ends it.
	List(ctx context.Context, path string, opts ListOptions, each func(FileInfo) error) error
	// Open begins to read a file. It never waits for the other end of a pipe.
	Open(ctx context.Context, path string, opts OpenOptions) (FileReader, error)
	// Write copies r to a file. It waits for a Read of r that is on its way, even at the
	// end of ctx.
	Write(ctx context.Context, path string, r io.Reader, opts WriteOptions) error
	// Move renames a file or directory. Between file systems it copies files and links;
	// directories are an error there.
	Move(ctx context.Context, from, to string, opts MoveOptions) error
	// Remove removes a file, an empty directory, or with Recursive all of a directory,
	// without following any link in it. What isn't there is an error. An interrupted one
	// may leave directories of the depth at its top, as ".wisbox-removed-1".
	Remove(ctx context.Context, path string, opts RemoveOptions) error
	// Mkdir makes a directory, which may not exist.
	Mkdir(ctx context.Context, path string, opts MkdirOptions) error
	// Chmod sets a file's permissions.
	Chmod(ctx context.Context, path string, mode fs.FileMode) error
	// Watch reports the changes below a directory from its return on, but for files and
	// directories whose names begin with ".wisbox-". Few can be open: more is ErrFileLimit.
	Watch(ctx context.Context, path string, opts WatchOptions) (FileWatch, error)
}

// Errors of a [FileSystem].
var (
	ErrNotRegular  = errors.New("not a regular file")
	ErrFileLimit   = errors.New("limit of the file operation reached")     // what was done or given until then stays
	ErrInterrupted = errors.New("file operation ended inside the sandbox") // by a program, or a limit: nobody knows how far it came
)

// FileInfo describes a file of a sandbox.
type FileInfo struct {
	Path     string // as asked for; in a listing relative to the directory
	Mode     fs.FileMode
	Size     int64
	Modified time.Time
	UID, GID int
	Link     string            // what a symbolic link says
	Real     string            // the file that the link leads to, absolute; "" where it leads nowhere
	RealMode fs.FileMode       // of that file
	Attrs    map[string]string // extended attributes ("user.…"), if asked for
}

// StatOptions of Stat.
type StatOptions struct {
	Follow bool // describe what a link leads to
	Attrs  bool // with extended attributes
}

// ListOptions of List.
type ListOptions struct {
	Depth int // levels, default 1
	// Limit of entries, default and maximum 1,000,000; more is ErrFileLimit after the last
	// one. So are more names than fit in 16 MiB at a time, and paths that are too long.
	Limit int
	Attrs bool // with extended attributes
}

// OpenOptions of Open.
type OpenOptions struct {
	Offset int64
	Length int64 // at most; 0 is to the end
	Any    bool  // devices and pipes too; of a pipe, what is in it now
}

// FileReader is an open file, to be closed. Its methods are for one goroutine. io.EOF
// is the file's end as its process has seen it, never the end of that process.
type FileReader interface {
	io.ReadCloser
	// Info describes the file as it was opened.
	Info() FileInfo
}

// WriteMode is a way to write a file.
type WriteMode string

const (
	// WriteReplace writes beside the target (".wisbox-…") and renames: readers see the
	// old or the new file. What an interrupted one leaves, the next of the same path removes.
	// A link stays, and the file that it leads to is replaced.
	WriteReplace WriteMode = "replace"
	// WriteInPlace truncates and writes; WriteAppend adds to the end.
	WriteInPlace WriteMode = "in_place"
	WriteAppend  WriteMode = "append"
)

// WriteOptions of Write.
type WriteOptions struct {
	How       WriteMode         // default WriteReplace
	Mode      fs.FileMode       // permissions; 0 is those of the file that is there, or 0644
	Parents   bool              // make missing directories, with 0755
	Exclusive bool              // the file may not exist
	Attrs     map[string]string // extended attributes to set ("user.…")
}

// MoveOptions of Move.
type MoveOptions struct {
	Parents   bool // make missing directories, with 0755
	Exclusive bool // nothing is replaced
}

// RemoveOptions of Remove.
type RemoveOptions struct {
	Recursive bool
	Limit     int // files and directories, default and maximum 10,000,000; more is ErrFileLimit
}

// MkdirOptions of Mkdir.
type MkdirOptions struct {
	Parents bool
	Mode    fs.FileMode // permissions, default 0755
}

// WatchOptions of Watch.
type WatchOptions struct {
	Recursive bool // directories below too, new ones as well
	Limit     int  // directories, default and maximum 8192; more is ErrFileLimit
}

// FileWatch is a watch that has begun. It ends with its ctx, with Close, and with the
// directory.
type FileWatch interface {
	// Next waits for the next change. io.EOF follows the directory's own removal, when
	// no program has it open any more. It is for one goroutine; Close ends it.
	Next() (FileEvent, error)
	Close() error
}

// FileChange is what happened to a file.
type FileChange string

// The changes. Where several files change at a time their order is kept; of equal ones
// in a row one may stand for all.
const (
	FileCreated     FileChange = "created" // or moved here
	FileWritten     FileChange = "written"
	FileRemoved     FileChange = "removed"
	FileRenamed     FileChange = "renamed" // away from this name
	FileModeChanged FileChange = "mode"    // or owner, times, attributes
	FilesLost       FileChange = "lost"    // there were too many changes at once: look again
)

// FileEvent is one change.
type FileEvent struct {
	Change FileChange
	Name   string // relative to the directory; "" is itself
	Dir    bool
}
