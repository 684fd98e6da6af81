package changes

import (
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/wisbox/wisbox/snapshot"
)

// literal writes a content as a hunk of a binary patch: deflated, in lines of at most 52
// bytes, each with its length before it, in git's base 85.
func (p *patcher) literal(e *snapshot.Entry) error {
	size := int64(0)
	if e != nil {
		size = e.Size
	}
	fmt.Fprintf(p.out, "literal %d\n", size)
	lines := &lines85{w: p.out}
	z := zlib.NewWriter(lines)
	if err := p.read(e, z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := lines.flush(); err != nil {
		return err
	}
	_, err := p.out.WriteString("\n")
	return err
}

const (
	alphabet85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
	lineBytes  = 52
)

// lines85 collects bytes until a line is full.
type lines85 struct {
	w   io.Writer
	buf [lineBytes]byte
	n   int
}

// Write implements io.Writer.
func (l *lines85) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := copy(l.buf[l.n:], p)
		l.n, p, written = l.n+n, p[n:], written+n
		if l.n == lineBytes {
			if err := l.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (l *lines85) flush() error {
	if l.n == 0 {
		return nil
	}
	clear(l.buf[l.n:])
	line := []byte{lengthLetter(l.n)}
	for at := 0; at < l.n; at += 4 {
		line = append85(line, binary.BigEndian.Uint32(l.buf[at:]))
	}
	l.n = 0
	_, err := l.w.Write(append(line, '\n'))
	return err
}

// lengthLetter returns A to Z for 1 to 26 bytes, a to z for 27 to 52.
func lengthLetter(n int) byte {
	if n <= 26 {
		return byte('A' + n - 1)
	}
	return byte('a' + n - 27)
}

func append85(line []byte, v uint32) []byte {
	var digits [5]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i], v = alphabet85[v%85], v/85
	}
	return append(line, digits[:]...)
}
