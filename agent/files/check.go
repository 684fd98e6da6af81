package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/filewire"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	maxErrno = 4095
	lastTime = 253402300799 // the end of year 9999, in seconds
)

// failed is the end of an operation as the process reported it; err is nil for a good one.
type failed struct {
	name string // where it happened below the path
	err  error
}

func (f *failed) at() string {
	if f.name == "" {
		return ""
	}
	return ", at " + printable(f.name)
}

func (f *failed) Error() string { return fmt.Sprint(f.err) }

// asFailed returns nil for an error that no process reported.
func asFailed(err error) *failed {
	var own *failed
	_ = errors.As(err, &own)
	return own
}

// failure reads an end.
func failure(end *filewire.Ended) (*failed, error) {
	own := &failed{}
	if len(end.At) > 0 {
		if !isName(end.At) {
			return nil, protocol("a failure at no place")
		}
		own.name = string(end.At)
	}
	switch {
	case end.Errno < 0 || end.Errno > maxErrno || end.Errno > 0 && end.Why != "":
		return nil, protocol("an error that is none")
	case end.Errno > 0:
		own.err = syscall.Errno(end.Errno)
	case end.Why == filewire.Irregular:
		own.err = sandbox.ErrNotRegular
	case end.Why == filewire.Limited:
		own.err = sandbox.ErrFileLimit
	case end.Why == filewire.Stopped:
		own.err = errStopped
	case end.Why != "":
		return nil, protocol("an unknown reason")
	}
	return own, nil
}

var errStopped = errors.New("stopped")

func protocol(text string) error { return fmt.Errorf("%w: %s", filewire.ErrProtocol, text) }

// check refuses requests that the files mode would refuse, or that don't fit a frame.
func check(ask *filewire.Ask, payload []byte) error {
	for _, path := range [][]byte{ask.Path, ask.To} {
		if len(path) > filewire.MaxPath || bytes.IndexByte(path, 0) >= 0 || len(path) > 0 && path[0] != '/' {
			return fmt.Errorf("%w: a path must be absolute, without NUL, of at most %d bytes", fs.ErrInvalid, filewire.MaxPath)
		}
	}
	switch {
	case len(ask.Path) == 0 || ask.Do == filewire.Move && len(ask.To) == 0:
		return fmt.Errorf("%w: a path must be absolute", fs.ErrInvalid)
	case ask.Offset < 0 || ask.Length < 0:
		return fmt.Errorf("%w: offset and length can't be negative", fs.ErrInvalid)
	case len(payload) > filewire.Chunk:
		return fmt.Errorf("%w: paths and attributes have %d bytes; the maximum is %d", fs.ErrInvalid, len(payload), filewire.Chunk)
	}
	return nil
}

// isName reports whether a name is relative and stays below.
func isName(name []byte) bool {
	if len(name) == 0 || len(name) > filewire.MaxPath || bytes.IndexByte(name, 0) >= 0 {
		return false
	}
	for part := range bytes.SplitSeq(name, []byte("/")) {
		if len(part) == 0 || len(part) > 255 || string(part) == "." || string(part) == ".." {
			return false
		}
	}
	return true
}

// follows reports whether a name comes after another in a listing.
func follows(name, before string) bool {
	a, b := strings.Split(name, "/"), strings.Split(before, "/")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return len(a) > len(b)
}

// infoOf reads an item.
func infoOf(payload []byte, path string) (info sandbox.FileInfo, name []byte, err error) {
	var i filewire.Item
	if err := filewire.Decode(payload, &i); err != nil {
		return info, nil, err
	}
	for _, link := range [][]byte{i.Link, i.Real} {
		if len(link) > filewire.MaxPath || bytes.IndexByte(link, 0) >= 0 {
			return info, nil, protocol("a link to nowhere")
		}
	}
	if i.Size < 0 || i.Nanos < 0 || i.Nanos > 999_999_999 || len(i.Real) > 0 && i.Real[0] != '/' {
		return info, nil, protocol("a file that can't be")
	}
	info = sandbox.FileInfo{
		Path: path, Mode: modeOf(i.Mode), Size: i.Size, Modified: time.Unix(min(max(i.Seconds, 0), lastTime), i.Nanos),
		UID: int(i.UID), GID: int(i.GID), Link: string(i.Link), Real: string(i.Real),
	}
	if info.Real != "" {
		info.RealMode = modeOf(i.RealMode)
	}
	for key, value := range i.Attrs {
		if info.Attrs == nil {
			info.Attrs = map[string]string{}
		}
		info.Attrs[key] = string(value)
	}
	return info, i.Name, nil
}

var kinds = map[uint32]fs.FileMode{
	unix.S_IFDIR: fs.ModeDir, unix.S_IFLNK: fs.ModeSymlink, unix.S_IFIFO: fs.ModeNamedPipe, unix.S_IFSOCK: fs.ModeSocket,
	unix.S_IFBLK: fs.ModeDevice, unix.S_IFCHR: fs.ModeDevice | fs.ModeCharDevice, unix.S_IFREG: 0,
}

func modeOf(kernels uint32) fs.FileMode {
	kind, known := kinds[kernels&unix.S_IFMT]
	if !known {
		kind = fs.ModeIrregular
	}
	mode := kind | fs.FileMode(kernels&0o777)
	for bit, is := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if kernels&bit != 0 {
			mode |= is
		}
	}
	return mode
}

var changes = map[string]sandbox.FileChange{
	filewire.Created: sandbox.FileCreated, filewire.Written: sandbox.FileWritten, filewire.Removed: sandbox.FileRemoved,
	filewire.Renamed: sandbox.FileRenamed, filewire.ModeChanged: sandbox.FileModeChanged, filewire.Lost: sandbox.FilesLost,
}

// eventOf reads an event.
func eventOf(payload []byte) (sandbox.FileEvent, error) {
	var e filewire.Event
	if err := filewire.Decode(payload, &e); err != nil {
		return sandbox.FileEvent{}, err
	}
	change, known := changes[e.Kind]
	own := len(e.Name) == 0 && (e.Kind == filewire.Removed || e.Kind == filewire.Lost)
	if !known || !own && !isName(e.Name) {
		return sandbox.FileEvent{}, protocol("a change that can't be")
	}
	return sandbox.FileEvent{Change: change, Name: string(e.Name), Dir: e.Dir}, nil
}

// printable returns a path for a message.
func printable(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(path)
	}
	return path
}
