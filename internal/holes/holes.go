// Package holes finds the holes of files, parts that take no room on the disk and read as zeros, and
// keeps them in copies.
package holes

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Data returns the next part of a file, from an offset on, that isn't a hole. At the end, or if only a
// hole follows, from is size. On a file system without holes everything is data.
func Data(fd int, at, size int64) (from, to int64, err error) {
	if at >= size {
		return size, size, nil
	}
	from, err = unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return at, size, nil
	case err != nil:
		return 0, 0, err
	}
	to, err = unix.Seek(fd, from, unix.SEEK_HOLE)
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		to = size
	case err != nil:
		return 0, 0, err
	}
	return min(from, size), min(max(to, from+1), size), nil
}

// Worth reports whether a file of that size and number of blocks of 512 bytes has holes that are worth
// the trouble of keeping them.
func Worth(size, blocks int64) bool {
	const least = 64 << 10 // bytes
	const block = 512
	return size-blocks*block >= least
}

const page = 4 << 10

var zeros [page]byte

// Writer writes a file from its beginning, and makes holes of pages of zeros. Close gives the file its
// size; it doesn't close the file.
type Writer struct {
	f  *os.File
	at int64
	// Data counts the bytes written that aren't in holes.
	Data int64
}

// NewWriter returns a Writer for an empty file.
func NewWriter(f *os.File) *Writer { return &Writer{f: f} }

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		size := run(w.at, p)
		if !empty(p[:size]) {
			var k int
			k, err = w.f.WriteAt(p[:size], w.at)
			w.Data += int64(k)
			if err != nil {
				return n + k, err
			}
		}
		w.at += int64(size)
		n, p = n+size, p[size:]
	}
	return n, nil
}

// run returns how many bytes to treat alike: pages of zeros, or pages that aren't.
func run(at int64, p []byte) int {
	first := int(min(int64(len(p)), page-at%page))
	if first < page {
		return first
	}
	n, zero := first, empty(p[:first])
	for n+page <= len(p) && empty(p[n:n+page]) == zero {
		n += page
	}
	return n
}

func empty(p []byte) bool {
	for len(p) > page {
		if !bytes.Equal(p[:page], zeros[:]) {
			return false
		}
		p = p[page:]
	}
	return bytes.Equal(p, zeros[:len(p)])
}

// Close sets the size of the file.
func (w *Writer) Close() error { return w.f.Truncate(w.at) }

var _ io.WriteCloser = (*Writer)(nil)
