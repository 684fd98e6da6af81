package redact

import (
	"bytes"
	"io"
	"slices"
)

// Writer passes a stream on with the values redacted. Bytes that may begin a value wait for the
// next Write or for Close; they are never more than a value's length. One goroutine may use it at a
// time.
type Writer struct {
	to    io.Writer
	r     *Redactor
	held  []byte // not passed on yet
	known int    // the first bytes of held that belong to a value
	total int64  // bytes received
	cut   bool   // the stream's beginning is missing, and no bytes were received yet
}

// NewWriter returns a Writer that passes redacted bytes on to to.
func (r *Redactor) NewWriter(to io.Writer) *Writer { return &Writer{to: to, r: r} }

// Continues, called before the first Write, means that the stream's beginning is missing: the
// Writer then also covers the end of a value at the beginning of the first Write.
func (w *Writer) Continues() { w.cut = true }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.total += int64(len(p))
	text := slices.Concat(w.held, p)
	if w.cut {
		text, w.cut = w.r.Tail(text), false
	}
	out := bytes.Clone(text)
	stars(out[:w.known])
	ready := len(text) - w.r.begun(text)
	covered := w.known
	for _, place := range w.r.cover(out, text) {
		if place[0] < ready {
			covered = max(covered, place[1])
		}
	}
	w.held, w.known = bytes.Clone(text[ready:]), max(0, covered-ready)
	if _, err := w.to.Write(out[:ready]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close passes on the waiting bytes. all is the real length of the stream: if some of it was cut
// off, the waiting bytes may be the beginning of a value and are covered.
func (w *Writer) Close(all int64) error {
	rest := bytes.Clone(w.held)
	if all > w.total {
		w.known = len(rest)
	}
	stars(rest[:w.known])
	w.held, w.known = nil, 0
	if len(rest) == 0 {
		return nil
	}
	_, err := w.to.Write(rest)
	return err
}
