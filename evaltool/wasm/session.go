package wasm

import (
	"context"
	"fmt"
	"strings"
	"sync"

	experimental "github.com/tetratelabs/wazero/experimental/sys"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// MaxContexts is how many kept interpreters one Session has at a time. Together
// they keep at most twice the memory that one evaluation may have.
const MaxContexts = 8

// Files is what read_text reads from; *vfs.FS is one.
type Files interface {
	ReadWhole(ctx context.Context, path string, max int64) ([]byte, vfs.Info, error)
}

// Session is the evaluator of one session: its files and its kept interpreters,
// on an engine that many share. It may be used from many goroutines at once.
type Session struct {
	engine *Engine
	files  Files

	mu        sync.Mutex
	kept      map[string]*keeper
	keptBytes int64 // of their images
}

var (
	_ evaltool.Engine   = (*Session)(nil)
	_ evaltool.Resetter = (*Session)(nil)
)

// Session makes the evaluator of a session. Without files, which may be nil,
// read_text knows what reads gives and nothing else.
func (e *Engine) Session(files Files) *Session {
	return &Session{engine: e, files: files, kept: map[string]*keeper{}}
}

// Guidance implements evaltool.Engine.
func (s *Session) Guidance() string {
	return fmt.Sprintf(`- sandbox "wasm": Python 3.12 with its standard library in WebAssembly, without a container: no programs, no network, no threads, no installed packages; open() sees the files in reads only, in a private directory. Clock and random numbers are the same on every run. fuel (at most %d) bounds the work, memory (at most %d) the bytes.`,
		s.engine.opts.Fuel, s.engine.opts.Memory)
}

// workspace is the private file system of an evaluation.
func (s *Session) workspace() *memoryFiles {
	files := newWorkspace()
	if s.files != nil {
		files.host = s.read
	}
	return files
}

// read opens a workspace file of the host for read_text.
func (s *Session) read(ctx context.Context, path string, most int64) (string, experimental.Errno) {
	data, _, err := s.files.ReadWhole(ctx, path, most)
	if err == nil {
		return string(data), 0
	}
	switch tool.KindOf(err) {
	case tool.NotFound:
		return "", experimental.ENOENT
	case tool.IsDir:
		return "", experimental.EISDIR
	case tool.NotDir:
		return "", experimental.ENOTDIR
	case tool.Escape, tool.Permission:
		return "", experimental.EACCES
	case tool.Invalid, tool.NotRegular:
		return "", experimental.EINVAL
	}
	return "", experimental.EIO
}

// hostPath is the path in the workspace that a private path stands for.
func hostPath(name string) (string, bool) { return strings.CutPrefix(name, dirHost+"/") }
