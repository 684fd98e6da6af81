package evaltool

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
)

// PartLines returns a function that writes each part to a stream as a line of JSON, for a [PartReader].
func PartLines(w io.Writer) func(Part) {
	return func(p Part) {
		if p == (Part{}) {
			return
		}
		raw, err := json.Marshal(p)
		if err == nil {
			_, _ = w.Write(append(raw, '\n')) // a reader who is gone is not an error of the code
		}
	}
}

// PartReader is a writer for lines of parts. It calls a function for each part until Close.
type PartReader struct {
	each func(Part)

	mu     sync.Mutex
	line   []byte
	closed bool
}

// ReadParts returns a PartReader, which calls each from the goroutine of the write.
func ReadParts(each func(Part)) *PartReader { return &PartReader{each: each} }

// Write implements io.Writer; it never fails.
func (r *PartReader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rest := p; len(rest) > 0 && !r.closed; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			r.line = append(r.line, rest...)
			break
		}
		r.take(append(r.line, rest[:end]...))
		r.line, rest = r.line[:0], rest[end+1:]
	}
	return len(p), nil
}

func (r *PartReader) take(line []byte) {
	var p Part
	if json.Unmarshal(line, &p) == nil {
		r.each(p)
	}
}

// Close waits for a running call of the function, which is then not called any more.
func (r *PartReader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
