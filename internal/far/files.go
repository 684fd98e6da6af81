package far

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Look is one request about the files of a session on another machine.
type Look struct {
	Do   string `json:"do"` // stat, list, read
	Path string `json:"path"`
	// Room bounds the names and facts of a list, in bytes; a longer list is too_large. 0 means no
	// bound.
	Room int `json:"room,omitempty"`
}

// The values of Look.Do.
const (
	lookStat = "stat"
	lookList = "list"
	lookRead = "read"
)

// File is the information about a file. It is an [fs.FileInfo] and an [fs.DirEntry].
type File struct {
	Called   string      `json:"name"`
	Bytes    int64       `json:"size"`
	Bits     fs.FileMode `json:"mode"`
	Modified time.Time   `json:"modified"`
}

func (f File) Name() string               { return f.Called }
func (f File) Size() int64                { return f.Bytes }
func (f File) Mode() fs.FileMode          { return f.Bits }
func (f File) Type() fs.FileMode          { return f.Bits.Type() }
func (f File) ModTime() time.Time         { return f.Modified }
func (f File) IsDir() bool                { return f.Bits.IsDir() }
func (f File) Sys() any                   { return nil }
func (f File) Info() (fs.FileInfo, error) { return f, nil }

func fileOf(i fs.FileInfo) File { return File{i.Name(), i.Size(), i.Mode(), i.ModTime()} }

// Answer answers a request about files; it writes content to w.
func (l Look) Answer(files fs.FS, w io.Writer) (all []File, err error) {
	defer func() { err = kindOf(err) }()
	switch l.Do {
	case lookStat:
		info, err := fs.Stat(files, l.Path)
		if err != nil {
			return nil, err
		}
		return []File{fileOf(info)}, nil
	case lookList:
		return l.list(files)
	case lookRead:
		f, err := files.Open(l.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return nil, err
	}
	return nil, tool.Errorf(tool.Unsupported, "files can't be asked for %q", l.Do)
}

// list reads a directory in parts, so that a list that is too long takes no memory.
func (l Look) list(files fs.FS) (all []File, err error) {
	f, err := files.Open(l.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dir, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, tool.Errorf(tool.Invalid, "this is a file, not a directory")
	}
	const part, facts = 1000, 100 // entries; bytes for an entry's numbers
	for size := 0; ; {
		entries, err := dir.ReadDir(part)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil { // it was removed meanwhile
				continue
			}
			name, _ := json.Marshal(info.Name())
			if size += len(name) + facts; l.Room > 0 && size > l.Room {
				return nil, tool.Errorf(tool.TooLarge, "the directory has too many entries for a list, which may take %d bytes; list it with a program (wisbox exec SESSION -- ls), or export it", l.Room)
			}
			all = append(all, fileOf(info))
		}
		if err != nil || len(entries) == 0 {
			slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Called, b.Called) })
			return all, ignoreEOF(err)
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// kindOf returns an error of a file system with the kind that the other side knows.
func kindOf(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tool.Errorf(tool.NotFound, "there is no such file").Because(err)
	case errors.Is(err, fs.ErrPermission):
		return tool.Errorf(tool.Permission, "the file can't be read").Because(err)
	case errors.Is(err, fs.ErrInvalid):
		return tool.Errorf(tool.Invalid, "this is not the path of a file").Because(err)
	}
	return err
}

// Files are the files of a session on another machine, read-only.
type Files struct {
	// Ask sends one request; content goes to w.
	Ask func(ctx context.Context, l Look, w io.Writer) ([]File, error)
}

func (f Files) ask(do, path string) ([]File, error) {
	if !fs.ValidPath(path) {
		return nil, &fs.PathError{Op: do, Path: path, Err: fs.ErrInvalid}
	}
	all, err := f.Ask(context.Background(), Look{Do: do, Path: path}, nil)
	return all, pathError(do, path, err)
}

func pathError(do, path string, err error) error {
	switch tool.KindOf(err) {
	case "":
		return nil
	case tool.NotFound:
		err = fs.ErrNotExist
	case tool.Permission:
		err = fs.ErrPermission
	}
	return &fs.PathError{Op: do, Path: path, Err: err}
}

// Stat implements [fs.StatFS].
func (f Files) Stat(name string) (fs.FileInfo, error) {
	all, err := f.ask(lookStat, name)
	if err == nil && len(all) != 1 {
		err = tool.Errorf(tool.Internal, "the other machine described %d files for one", len(all))
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// ReadDir implements [fs.ReadDirFS].
func (f Files) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := f.ask(lookList, name)
	entries := make([]fs.DirEntry, len(all))
	for i, e := range all {
		entries[i] = e
	}
	return entries, err
}

// Open implements [fs.FS]. Content is fetched with the first Read.
func (f Files) Open(name string) (fs.File, error) {
	info, err := f.Stat(name)
	if err != nil {
		return nil, err
	}
	return &file{files: f, name: name, info: info}, nil
}

// file is an open file or directory. It is for one goroutine at a time.
type file struct {
	files Files
	name  string
	info  fs.FileInfo

	content *io.PipeReader // nil before the first Read
	cancel  context.CancelFunc
	entries []fs.DirEntry
	listed  bool
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *file) Read(p []byte) (int, error) {
	if f.info.IsDir() {
		return 0, &fs.PathError{Op: lookRead, Path: f.name, Err: errors.New("is a directory")}
	}
	if f.content == nil {
		var ctx context.Context
		ctx, f.cancel = context.WithCancel(context.Background())
		r, w := io.Pipe()
		f.content = r
		go func() {
			_, err := f.files.Ask(ctx, Look{Do: lookRead, Path: f.name}, w)
			_ = w.CloseWithError(pathError(lookRead, f.name, err))
		}()
	}
	return f.content.Read(p)
}

func (f *file) ReadDir(n int) (part []fs.DirEntry, err error) {
	if !f.listed {
		if f.entries, err = f.files.ReadDir(f.name); err != nil {
			return nil, err
		}
		f.listed = true
	}
	if n <= 0 || n > len(f.entries) {
		if n > 0 && len(f.entries) == 0 {
			return nil, io.EOF
		}
		n = len(f.entries)
	}
	part, f.entries = f.entries[:n], f.entries[n:]
	return part, nil
}

func (f *file) Close() error {
	if f.content != nil {
		f.cancel()
		_ = f.content.Close()
	}
	return nil
}
