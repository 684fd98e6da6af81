package capture

import (
	"io"
	"os"
	"sync"
)

// Later is a [RingFile] that keeps a few bytes in memory and more in a file. Its methods may be
// called from many goroutines at once.
type Later struct {
	open func() (*os.File, error)
	few  int64

	mu     sync.Mutex
	memory []byte
	file   *os.File
	closed bool
}

// NewLater returns a Later that keeps few bytes in memory. open creates the file; its error becomes
// that of the write that needed the file.
func NewLater(few int64, open func() (*os.File, error)) *Later { return &Later{open: open, few: few} }

// ReadAt implements [io.ReaderAt].
func (l *Later) ReadAt(p []byte, off int64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return 0, os.ErrClosed
	case l.file != nil:
		return l.file.ReadAt(p, off)
	case off >= int64(len(l.memory)):
		return 0, io.EOF
	}
	n := copy(p, l.memory[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [io.WriterAt].
func (l *Later) WriteAt(p []byte, off int64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, os.ErrClosed
	}
	end := off + int64(len(p))
	if l.file == nil && end <= l.few {
		if grow := end - int64(len(l.memory)); grow > 0 {
			l.memory = append(l.memory, make([]byte, grow)...)
		}
		return copy(l.memory[off:], p), nil
	}
	if l.file == nil {
		if err := l.spill(); err != nil {
			return 0, err
		}
	}
	return l.file.WriteAt(p, off)
}

// spill creates the file with the bytes in memory.
func (l *Later) spill() error {
	f, err := l.open()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(l.memory, 0); err != nil {
		_ = f.Close()
		return err
	}
	l.file, l.memory = f, nil
	return nil
}

// Close implements [io.Closer].
func (l *Later) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.memory = true, nil
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
