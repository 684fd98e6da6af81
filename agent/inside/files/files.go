// Package files is the agent's files mode: a process that does one file operation after the other for the host, over
// agent/filewire on its stdin and stdout, until stdin ends. It is started like a program and has a program's rights, so
// it doesn't check paths: every program can reach the same files. It keeps at most one frame of content, and at most
// [maxHeld] bytes of names.
package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/filewire"
)

// worker is the state of the process.
type worker struct {
	*filewire.Stream
	ask  *filewire.Ask
	body bool // more content may follow
}

// Main runs the process.
func Main() error {
	signal.Ignore(syscall.SIGXFSZ) // a file at its size limit is an error
	unix.Umask(0)                  // files get the requested permissions
	return Serve(os.Stdin, os.Stdout)
}

// Serve handles requests until in ends.
func Serve(in io.Reader, out io.Writer) error {
	w := &worker{Stream: filewire.NewStream(in, out)}
	for {
		typ, payload, err := w.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.serve(typ, payload); err != nil {
			return err
		}
	}
}

// serve handles one operation. An error ends the process.
func (w *worker) serve(typ filewire.Type, payload []byte) error {
	w.ask = &filewire.Ask{}
	if typ != filewire.IsAsk {
		return filewire.ErrProtocol
	}
	if err := filewire.Decode(payload, w.ask); err != nil {
		return err
	}
	w.body = w.ask.Do == filewire.Write
	if err := w.PutJSON(filewire.IsEnded, endOf(w.do())); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for w.body { // discard the rest of a failed write
		if _, err := w.content(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errStopped) {
			return err
		}
	}
	return nil
}

func (w *worker) do() error {
	for _, path := range [][]byte{w.ask.Path, w.ask.To} {
		if len(path) > filewire.MaxPath {
			return unix.ENAMETOOLONG
		}
	}
	if len(w.ask.Path) == 0 || w.ask.Path[0] != '/' {
		return unix.EINVAL
	}
	path := string(w.ask.Path)
	switch w.ask.Do {
	case filewire.Stat:
		return w.stat(path)
	case filewire.List:
		return w.list(path)
	case filewire.Read:
		return w.read(path)
	case filewire.Write:
		return w.write(path)
	case filewire.Move:
		return w.move(path, string(w.ask.To))
	case filewire.Remove:
		return w.remove(path)
	case filewire.Mkdir:
		return w.mkdir(path)
	case filewire.Chmod:
		return unix.Fchmodat(unix.AT_FDCWD, path, w.ask.Mode, 0)
	case filewire.Watch:
		return w.watch(path)
	}
	return unix.ENOSYS
}

// reason is an error without an error number.
type reason string

func (r reason) Error() string { return string(r) }

const (
	errIrregular = reason(filewire.Irregular)
	errLimited   = reason(filewire.Limited)
	errStopped   = reason(filewire.Stopped)
)

// at adds the name below the path to an error.
func at(name string, err error) error { return &fs.PathError{Path: name, Err: err} }

func endOf(err error) (end filewire.Ended) {
	if err == nil {
		return end
	}
	var below *fs.PathError
	if errors.As(err, &below) && len(below.Path) <= filewire.MaxPath {
		end.At = []byte(below.Path)
	}
	var why reason
	var errno syscall.Errno
	switch {
	case errors.As(err, &why):
		end.Why = string(why)
	case errors.As(err, &errno):
		end.Errno = int(errno)
	default:
		end.Errno = int(unix.EIO)
	}
	return end
}

// split splits a path. It doesn't clean the directory, since ".." after a link has another meaning. base is empty for
// the root, and may be "." or "..".
func split(path string) (dir, base string) {
	path = strings.TrimRight(path, "/")
	cut := strings.LastIndexByte(path, '/') + 1
	return "/" + path[:cut], path[cut:]
}

// openParent opens the directory of a path's last name. With parents it creates missing directories.
func openParent(path string, parents bool) (dir *os.File, base string, err error) {
	at, base := split(path)
	if base == "" || base == "." || base == ".." {
		return nil, "", unix.EBUSY
	}
	if parents {
		if err := mkdirAll(at); err != nil {
			return nil, "", err
		}
	}
	dir, err = open(unix.AT_FDCWD, at, unix.O_PATH|unix.O_DIRECTORY, 0)
	return dir, base, err
}

// open never blocks, and never acquires a controlling terminal.
func open(dir int, name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOCTTY, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), ""), nil
}

func fd(f *os.File) int { return int(f.Fd()) }

func isDir(mode uint32) bool     { return mode&unix.S_IFMT == unix.S_IFDIR }
func isLink(mode uint32) bool    { return mode&unix.S_IFMT == unix.S_IFLNK }
func isRegular(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFREG }
