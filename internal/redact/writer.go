package redact

import (
	"bytes"
	"io"
	"slices"
)

// Writer passes a stream on without the values. What could be the beginning of
// one waits for the next Write, or for Close: never more than a value's length.
// One goroutine may use it at a time.
type Writer struct {
	to    io.Writer
	r     *Redactor
	held  []byte // not passed on yet
	known int    // of held, the first bytes that belong to a value
	total int64  // bytes that came
	cut   bool   // the beginning of the stream is elsewhere, and nothing came yet
}

// NewWriter redacts what is written to to.
func (r *Redactor) NewWriter(to io.Writer) *Writer { return &Writer{to: to, r: r} }

// Continues says, before the first Write, that the beginning of the stream is elsewhere:
// also what a value ends with is covered where the first Write begins with it.
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

// Close passes on what waits. all is how many bytes the stream had in truth:
// where some were cut off, what waits may well be a value's beginning and is covered.
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
