package wasm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	experimental "github.com/tetratelabs/wazero/experimental/sys"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/kept"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// maxListed is the maximum number of files in list_files, as in the other engines.
const maxListed = 10_000

// Files is the file system of read_text and list_files; *vfs.FS implements it.
type Files interface {
	Paths(ctx context.Context, path string, max int) ([]string, error)
	ReadWhole(ctx context.Context, path string, max int64) ([]byte, vfs.Info, error)
}

// Session is the evaluator of one session: its files and its kept interpreters, on a shared engine. Its methods may be
// called concurrently.
type Session struct {
	engine *Engine
	files  Files
	kept   *kept.Table[string, names]

	mu        sync.Mutex
	keptBytes int64 // of the images of kept interpreters
}

var (
	_ evaltool.Engine   = (*Session)(nil)
	_ evaltool.Resetter = (*Session)(nil)
)

// Session returns the evaluator of a session. files may be nil; then read_text only finds the files of reads.
func (e *Engine) Session(files Files) *Session {
	s := &Session{engine: e, files: files}
	s.kept = kept.New[string](s.forget)
	return s
}

// Guidance implements evaltool.Engine.
func (s *Session) Guidance() string {
	return fmt.Sprintf(`- sandbox "wasm": Python 3.12 with its standard library in WebAssembly, without a container: no programs, no network, no threads, no installed packages; open() sees the files in reads only, in a private directory; of what IPython adds it lacks !command, %%pip and %%%%bash. Clock and random numbers are the same on every run. fuel (at most %d) bounds the work, memory (at most %d) the bytes.`,
		s.engine.opts.Fuel, s.engine.opts.Memory)
}

// workspace returns the private file system of an evaluation.
func (s *Session) workspace() *memoryFiles {
	files := newWorkspace()
	if s.files != nil {
		files.host, files.list = s.read, s.list
	}
	return files
}

// read opens a workspace file of the host for read_text. The driver has cleaned its path: the prefix keeps a path that
// begins with workspace/ from being cleaned again.
func (s *Session) read(ctx context.Context, path string, most int64) (string, experimental.Errno) {
	data, _, err := s.files.ReadWhole(ctx, "/workspace/"+path, most)
	return string(data), errnoOf(err)
}

// list returns a JSON list of the files below a workspace directory, or null if there are too many.
func (s *Session) list(ctx context.Context, path string, most int64) (string, experimental.Errno) {
	paths, err := s.files.Paths(ctx, "/workspace/"+path, maxListed)
	if kind := tool.KindOf(err); kind == tool.TooLarge || kind == tool.Limit {
		return "null", 0
	} else if err != nil {
		return "", errnoOf(err)
	}
	text, err := json.Marshal(paths)
	if err != nil || int64(len(text)) > most {
		return "null", 0
	}
	return string(text), 0
}

// errnoOf returns the error number for an error of the file tools.
func errnoOf(err error) experimental.Errno {
	switch tool.KindOf(err) {
	case "":
		return 0
	case tool.NotFound:
		return experimental.ENOENT
	case tool.IsDir:
		return experimental.EISDIR
	case tool.NotDir:
		return experimental.ENOTDIR
	case tool.Escape, tool.Permission:
		return experimental.EACCES
	case tool.Invalid, tool.NotRegular:
		return experimental.EINVAL
	}
	return experimental.EIO
}

// hostPath converts a private path to one in the workspace, and returns the host function that serves it.
func (f *memoryFiles) hostPath(name string) (path string, from hostText, ok bool) {
	if path, ok := strings.CutPrefix(name, dirHost+"/"); ok {
		return path, f.host, true
	}
	path, ok = strings.CutPrefix(name, dirList)
	return path, f.list, ok && (path == "" || path[0] == '/')
}
