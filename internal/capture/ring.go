package capture

import (
	"io"
	"sync"
)

// RingFile stores the bytes of a Ring: an *os.File, [Memory], or [Later].
type RingFile interface {
	io.ReaderAt
	io.WriterAt
}

// Ring keeps the newest bytes of a stream by their offsets from its beginning. Its methods may be
// called from many goroutines at once.
type Ring struct {
	file RingFile
	size int64

	mu    sync.Mutex
	start int64 // the first available offset
	end   int64 // bytes written so far
}

// NewRing returns a Ring that keeps size bytes in file. The stream begins at the offset at: earlier
// bytes aren't kept.
func NewRing(file RingFile, size, at int64) *Ring {
	return &Ring{file: file, size: size, start: at, end: at}
}

// Memory returns a RingFile in memory, for at most size bytes.
func Memory(size int64) RingFile { return make(memory, size) }

type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error)  { return copy(p, m[off:]), nil }
func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// Write implements io.Writer. It never fails: bytes that the file doesn't take are lost like old
// ones.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	skip := max(0, int64(n)-r.size)
	r.end += skip
	for p = p[skip:]; len(p) > 0; {
		at := r.end % r.size
		part := p[:min(int64(len(p)), r.size-at)]
		_, err := r.file.WriteAt(part, at)
		r.end += int64(len(part))
		if err != nil {
			r.start = r.end
		}
		p = p[len(part):]
	}
	r.start = max(r.start, r.end-r.size)
	return n, nil
}

// Bounds returns the available offsets: from start up to, but not including, end.
func (r *Ring) Bounds() (start, end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start, r.end
}

// Read returns up to limit bytes from an offset, or from the first available one, and the offset
// where they begin. At or beyond the end there are none.
func (r *Ring) Read(offset int64, limit int) (data []byte, from int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from = min(max(offset, r.start), r.end)
	data = make([]byte, min(int64(limit), r.end-from))
	for done := int64(0); done < int64(len(data)); {
		at := (from + done) % r.size
		part := data[done:min(int64(len(data)), done+r.size-at)]
		if n, err := r.file.ReadAt(part, at); n < len(part) {
			return nil, from, err
		}
		done += int64(len(part))
	}
	return data, from, nil
}
