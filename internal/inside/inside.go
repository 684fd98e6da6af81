// Package inside gives access to the files inside a sandbox over two streams. A request is one
// message; content comes from a reader, and answers go to a writer. A [Client] is a
// [sandbox.FileSystem] that sends requests, and [Serve] performs them on another one. Errors are
// [*tool.Error]s, which pass between processes; those of a Client wrap the same errors as those of
// a FileSystem.
//
// An answer is lines of JSON: for stat one [info]; for list one for each file; for read one, and
// then the content; for watch an empty one when the watch has begun, and then [event]s.
package inside

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Operations.
const (
	Stat   = "stat"
	List   = "list"
	Open   = "open"
	Write  = "write"
	Move   = "move"
	Remove = "remove"
	Mkdir  = "mkdir"
	Chmod  = "chmod"
	Watch  = "watch"
)

// Ask is one operation. Names may have any bytes, which JSON's text can't represent.
type Ask struct {
	Do    string            `json:"do"`
	Path  []byte            `json:"path"`
	To    []byte            `json:"to,omitempty"`
	Mode  fs.FileMode       `json:"mode,omitempty"` // chmod
	Attrs map[string][]byte `json:"attrs,omitempty"`

	Stat   sandbox.StatOptions   `json:"stat,omitzero"`
	List   sandbox.ListOptions   `json:"list,omitzero"`
	Open   sandbox.OpenOptions   `json:"open,omitzero"`
	Write  sandbox.WriteOptions  `json:"write,omitzero"` // except for Attrs
	Move   sandbox.MoveOptions   `json:"move,omitzero"`
	Remove sandbox.RemoveOptions `json:"remove,omitzero"`
	Mkdir  sandbox.MkdirOptions  `json:"mkdir,omitzero"`
	Watch  sandbox.WatchOptions  `json:"watch,omitzero"`
}

// Changes reports whether the operation changes files.
func (a *Ask) Changes() bool {
	switch a.Do {
	case Write, Move, Remove, Mkdir, Chmod:
		return true
	}
	return false
}

// Grows reports whether the operation may need more disk space.
func (a *Ask) Grows() bool { return a.Do == Write || a.Do == Mkdir || a.Do == Move }

// info is the JSON form of a [sandbox.FileInfo].
type info struct {
	Path     []byte            `json:"path,omitempty"`
	Mode     fs.FileMode       `json:"mode"`
	Size     int64             `json:"size"`
	Modified time.Time         `json:"modified"`
	UID      int               `json:"uid"`
	GID      int               `json:"gid"`
	Link     []byte            `json:"link,omitempty"`
	Real     []byte            `json:"real,omitempty"`
	RealMode fs.FileMode       `json:"real_mode,omitempty"`
	Attrs    map[string][]byte `json:"attrs,omitempty"`
}

func infoOf(f sandbox.FileInfo) info {
	return info{[]byte(f.Path), f.Mode, f.Size, f.Modified, f.UID, f.GID, []byte(f.Link), []byte(f.Real), f.RealMode, bytesOf(f.Attrs)}
}

func (i info) file() sandbox.FileInfo {
	return sandbox.FileInfo{
		Path: string(i.Path), Mode: i.Mode, Size: i.Size, Modified: i.Modified, UID: i.UID, GID: i.GID,
		Link: string(i.Link), Real: string(i.Real), RealMode: i.RealMode, Attrs: textsOf(i.Attrs),
	}
}

func bytesOf(texts map[string]string) map[string][]byte {
	if texts == nil {
		return nil
	}
	out := make(map[string][]byte, len(texts))
	for name, text := range texts {
		out[name] = []byte(text)
	}
	return out
}

func textsOf(all map[string][]byte) map[string]string {
	if all == nil {
		return nil
	}
	out := make(map[string]string, len(all))
	for name, value := range all {
		out[name] = string(value)
	}
	return out
}

// event is the JSON form of a [sandbox.FileEvent].
type event struct {
	Change sandbox.FileChange `json:"change,omitempty"`
	Name   []byte             `json:"name,omitempty"`
	Dir    bool               `json:"dir,omitempty"`
}

func put(w io.Writer, message any) error {
	line, err := json.Marshal(message)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

// kinds maps errors of a [sandbox.FileSystem] to kinds of tools' errors. If several have the same
// kind, a Client's error wraps the first.
var kinds = []struct {
	is   error
	kind tool.Kind
	text string
}{
	{fs.ErrNotExist, tool.NotFound, "file or directory not found"},
	{syscall.EISDIR, tool.IsDir, "it is a directory"},
	{syscall.ENOTDIR, tool.NotDir, "it is, or a part of the path is, no directory"},
	{syscall.ENOTEMPTY, tool.Conflict, "the directory isn't empty"},
	{fs.ErrExist, tool.Exists, "it already exists"},
	{fs.ErrPermission, tool.Permission, "the sandbox's programs have no right to do that"},
	{syscall.EROFS, tool.Permission, "the file system is read-only; write below /workspace or /tmp"},
	{syscall.ENOSPC, tool.NoSpace, "there is no room; remove files first"},
	{syscall.EDQUOT, tool.NoSpace, "there is no room; remove files first"},
	{syscall.EFBIG, tool.NoSpace, "the file would be larger than a file of the sandbox may be"},
	{sandbox.ErrNotRegular, tool.NotRegular, "it is not a regular file"},
	{syscall.EBUSY, tool.Busy, "it is in use, as / and mount points are; choose another path, or try again if a program uses it"},
	{syscall.EXDEV, tool.Unsupported, "a directory can't be moved to another file system; copy it"},
	{sandbox.ErrFileLimit, tool.Limit, "a limit of file operations was reached; ask for less at once"},
	{syscall.ENAMETOOLONG, tool.Invalid, "a name in the path is too long; one may have 255 bytes, a path 4096"},
	{syscall.ELOOP, tool.Invalid, "too many links in the path"},
	{fs.ErrInvalid, tool.Invalid, "the path or an option is invalid; a path is absolute, without NUL, of at most 4096 bytes"},
	{syscall.EINVAL, tool.Invalid, "the path or an option is invalid"},
	{syscall.ENOTSUP, tool.Unsupported, "the file system has no extended attributes"},
	{sandbox.ErrInterrupted, tool.Unavailable, "the operation was interrupted in the sandbox; look how far it came"},
}

// failure returns an error of an operation on a path as a tool's error.
func failure(err error, path string) error {
	if err == nil {
		return nil
	}
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		return known
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			return tool.Errorf(k.kind, "%q: %s", clip.Text(path), k.text).Because(err).In("path")
		}
	}
	return toolerr.Of(err)
}

// wrapped adds the sentinel to an error from Serve, which may be in another process.
func wrapped(err error) error {
	known := (*tool.Error)(nil)
	if !errors.As(err, &known) {
		return err
	}
	for _, k := range kinds {
		if known.Kind == k.kind {
			clone := *known
			return clone.Because(errors.Join(k.is, known.Unwrap()))
		}
	}
	return known
}
