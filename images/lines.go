package images

import (
	"bytes"
	"strings"
)

const (
	maxLine   = 500 // bytes of a progress line; longer ones are cut
	tailLines = 8
)

// lineWriter calls line for each line written to it.
type lineWriter struct {
	line func(string)
	rest []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexAny(w.rest, "\r\n")
		if i < 0 {
			break
		}
		w.emit(w.rest[:i])
		w.rest = w.rest[i+1:]
	}
	if len(w.rest) > maxLine {
		w.emit(w.rest)
		w.rest = nil
	}
	return len(p), nil
}

func (w *lineWriter) emit(b []byte) {
	if s := strings.TrimSpace(string(b[:min(len(b), maxLine)])); s != "" {
		w.line(s)
	}
}

// tail holds the last lines, for an error's text.
type tail []string

func (t *tail) add(line string) {
	*t = append(*t, line)
	if len(*t) > tailLines {
		*t = (*t)[1:]
	}
}

func (t tail) String() string { return strings.Join(t, "; ") }
