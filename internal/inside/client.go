package inside

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/wisbox/wisbox/sandbox"
)

// Client is a [sandbox.FileSystem]. Do performs an operation: it reads in, unless it is nil, writes
// out from one goroutine, and ends when ctx does.
type Client struct {
	Do func(ctx context.Context, a *Ask, in io.Reader, out io.Writer) error
}

var _ sandbox.FileSystem = Client{}

func (c Client) do(ctx context.Context, a *Ask, in io.Reader, out io.Writer) error {
	return wrapped(c.Do(ctx, a, in, out))
}

// answer is an operation whose answer is lines.
type answer struct {
	end  context.CancelFunc
	pipe *io.PipeReader
	*bufio.Reader
}

// ask begins an operation, which ends with the reads of its answer.
func (c Client) ask(ctx context.Context, a *Ask) *answer {
	ctx, end := context.WithCancel(ctx)
	r, w := io.Pipe()
	go func() { w.CloseWithError(c.do(ctx, a, nil, w)) }() // nil is io.EOF
	return &answer{end, r, bufio.NewReaderSize(r, 64<<10)}
}

// Close ends the operation.
func (a *answer) Close() {
	a.end()
	_ = a.pipe.CloseWithError(fs.ErrClosed)
}

// maxLine bounds a message, in bytes. The longest is that of a file: the agent describes one in at
// most 64 KiB, and JSON may need six bytes for each.
const maxLine = 512 << 10

// line reads a message; io.EOF is the operation's successful end.
func (a *answer) line(message any) error {
	var line []byte
	for {
		part, err := a.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return fmt.Errorf("%w: a message of more than %d bytes", sandbox.ErrInterrupted, maxLine)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(line, message)
	}
}

// Stat implements [sandbox.FileSystem].
func (c Client) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (sandbox.FileInfo, error) {
	a := c.ask(ctx, &Ask{Do: Stat, Path: []byte(path), Stat: opts})
	defer a.Close()
	var one info
	err := a.line(&one)
	return one.file(), unexpected(err)
}

// unexpected turns io.EOF into an early end.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return sandbox.ErrInterrupted
	}
	return err
}

// List implements [sandbox.FileSystem].
func (c Client) List(ctx context.Context, path string, opts sandbox.ListOptions, each func(sandbox.FileInfo) error) error {
	a := c.ask(ctx, &Ask{Do: List, Path: []byte(path), List: opts})
	defer a.Close()
	for {
		var one info
		err := a.line(&one)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(one.file())
		}
		if err != nil {
			return err
		}
	}
}

// reader is an open file.
type reader struct {
	*answer
	info sandbox.FileInfo
}

// Open implements [sandbox.FileSystem].
func (c Client) Open(ctx context.Context, path string, opts sandbox.OpenOptions) (sandbox.FileReader, error) {
	a := c.ask(ctx, &Ask{Do: Open, Path: []byte(path), Open: opts})
	var one info
	if err := a.line(&one); err != nil {
		a.Close()
		return nil, unexpected(err)
	}
	return &reader{a, one.file()}, nil
}

func (r *reader) Info() sandbox.FileInfo { return r.info }

// Close ends the reading.
func (r *reader) Close() error {
	r.answer.Close()
	return nil
}

// noted keeps the errors of the content's reader apart from those of the file system.
type noted struct {
	r   io.Reader
	mu  sync.Mutex
	err error
}

func (n *noted) Read(p []byte) (int, error) {
	got, err := n.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.mu.Lock()
		n.err = err
		n.mu.Unlock()
	}
	return got, err
}

func (n *noted) cause() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Write implements [sandbox.FileSystem].
func (c Client) Write(ctx context.Context, path string, r io.Reader, opts sandbox.WriteOptions) error {
	a := &Ask{Do: Write, Path: []byte(path), Attrs: bytesOf(opts.Attrs), Write: opts}
	a.Write.Attrs = nil
	in := &noted{r: r}
	err := c.do(ctx, a, in, nil)
	if cause := in.cause(); err != nil && cause != nil {
		return cause
	}
	return err
}

// Move implements [sandbox.FileSystem].
func (c Client) Move(ctx context.Context, from, to string, opts sandbox.MoveOptions) error {
	return c.do(ctx, &Ask{Do: Move, Path: []byte(from), To: []byte(to), Move: opts}, nil, nil)
}

// Remove implements [sandbox.FileSystem].
func (c Client) Remove(ctx context.Context, path string, opts sandbox.RemoveOptions) error {
	return c.do(ctx, &Ask{Do: Remove, Path: []byte(path), Remove: opts}, nil, nil)
}

// Mkdir implements [sandbox.FileSystem].
func (c Client) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	return c.do(ctx, &Ask{Do: Mkdir, Path: []byte(path), Mkdir: opts}, nil, nil)
}

// Chmod implements [sandbox.FileSystem].
func (c Client) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return c.do(ctx, &Ask{Do: Chmod, Path: []byte(path), Mode: mode}, nil, nil)
}

// watcher is a running watch.
type watcher struct{ *answer }

// Watch implements [sandbox.FileSystem].
func (c Client) Watch(ctx context.Context, path string, opts sandbox.WatchOptions) (sandbox.FileWatch, error) {
	a := c.ask(ctx, &Ask{Do: Watch, Path: []byte(path), Watch: opts})
	var begun event
	if err := a.line(&begun); err != nil {
		a.Close()
		return nil, unexpected(err)
	}
	return watcher{a}, nil
}

func (w watcher) Next() (sandbox.FileEvent, error) {
	var e event
	err := w.line(&e)
	return sandbox.FileEvent{Change: e.Change, Name: string(e.Name), Dir: e.Dir}, err
}

func (w watcher) Close() error {
	w.answer.Close()
	return nil
}
