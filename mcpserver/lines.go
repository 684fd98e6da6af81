package mcpserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Limits of one connection on pipes.
const (
	maxLine        = 8 << 20  // bytes of one message of a client
	maxUnanswered  = 1024     // unanswered requests
	maxUnansweredB = 64 << 20 // bytes of them
	maxUnwritten   = 8 << 20  // bytes of answers that the client hasn't read
	keptOfLong     = 4 << 10  // bytes of an over-long line kept at each end, to find its id
)

// line is one line of input without its newline. Of a line that is too long only the head and the tail are kept.
type line struct {
	text    []byte
	tail    []byte
	tooLong bool
}

// readLine reads up to the next newline or the end of the input; the last line needs no newline. It holds at most max
// bytes.
func readLine(r *bufio.Reader, max int) (line, error) {
	var l line
	for {
		part, err := r.ReadSlice('\n')
		l.add(part, max)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(l.text) > 0 || l.tooLong):
			err = nil
		}
		l.text = bytes.TrimRight(l.text, "\r\n")
		return l, err
	}
}

func (l *line) add(part []byte, max int) {
	if !l.tooLong && len(l.text)+len(part) <= max+1 { // the newline doesn't count
		l.text = append(l.text, part...)
		return
	}
	if !l.tooLong {
		l.tooLong = true
		l.tail = lastBytes(l.text, keptOfLong)
		l.text = bytes.Clone(l.text[:min(len(l.text), keptOfLong)])
	}
	l.tail = lastBytes(append(l.tail, part...), keptOfLong)
}

func lastBytes(b []byte, most int) []byte {
	return bytes.Clone(b[max(0, len(b)-most):])
}

// blank reports whether the line is empty.
func (l *line) blank() bool { return !l.tooLong && len(bytes.TrimSpace(l.text)) == 0 }
