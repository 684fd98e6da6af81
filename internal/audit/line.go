package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
)

// link is the part of a line that belongs to the chain.
type link struct {
	Seq  int64   `json:"seq"`
	Prev *string `json:"prev"`
}

// parse reads a line's link; ok is false if the line isn't a complete record.
func parse(line []byte) (l link, ok bool) {
	ok = json.Unmarshal(line, &l) == nil && l.Prev != nil && l.Seq > 0
	return l, ok
}

// whole reports whether a record that waits for the log is complete.
func whole(body []byte) bool { return len(body) > 0 && json.Valid(body) }

func sum(line []byte) string {
	h := sha256.Sum256(line)
	return hex.EncodeToString(h[:])
}

// tailSize is the number of bytes read first at a log's end: a record is smaller.
const tailSize = 64 << 10

// lastLine returns the position at the end of a log of that size, and whether its last line is
// torn. A line that isn't a record counts as one after the last record.
func lastLine(r io.ReaderAt, size int64) (p Position, torn bool, err error) {
	for want := int64(tailSize); ; want *= 8 {
		from := max(0, size-want)
		tail := make([]byte, size-from)
		if _, err := r.ReadAt(tail, from); err != nil && err != io.EOF {
			return p, false, err
		}
		p, torn, whole := position(tail)
		if whole || from == 0 {
			return p, torn, nil
		}
	}
}

// position looks for the last record in a log's tail; whole is false if there is none and more of
// the log must be read.
func position(tail []byte) (p Position, torn, whole bool) {
	if len(tail) == 0 {
		return p, false, true
	}
	torn = tail[len(tail)-1] != '\n'
	lines := bytes.Split(bytes.TrimSuffix(tail, []byte("\n")), []byte("\n"))
	p.Hash = sum(lines[len(lines)-1])
	for i, line := range slices.Backward(lines) {
		if l, ok := parse(line); ok {
			p.Seq = l.Seq + int64(len(lines)-1-i)
			return p, torn, true
		}
	}
	p.Seq = int64(len(lines))
	return p, torn, false
}
