package vfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

const scanBuffer = 256 << 10

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, scanBuffer); return &b }}

// scanner reads a text once from end to end. It checks its encoding, counts its lines and keeps
// the wanted ones, as far as they fit into one answer.
type scanner struct {
	first, want int64 // lines

	lines   int64 // complete lines; at the end all
	bytes   int64 // read so far
	start   int64 // offset of kept in bytes
	kept    []byte
	partial bool // the last byte was not a newline
}

func (s *scanner) scan(ctx context.Context, r io.Reader) error {
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	held := 0 // bytes of a character that the last read has cut
	for {
		n, err := r.Read((*buf)[held:])
		n += held
		whole := wholeChars((*buf)[:n])
		if err != nil || s.bytes > maxScan {
			whole = n
		}
		if !utf8.Valid((*buf)[:whole]) {
			return tool.Errorf(tool.NotText, "the file is not UTF-8 text; read it with encoding base64")
		}
		s.take((*buf)[:whole])
		held = copy(*buf, (*buf)[whole:n])
		switch {
		case errors.Is(err, io.EOF):
			s.end()
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case s.bytes > maxScan:
			return tooLargeToScan(s.bytes) // the file grew meanwhile
		}
	}
}

// wholeChars returns the length of b without a character that is cut at its end.
func wholeChars(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return len(b)
			}
			return i
		}
	}
	return len(b)
}

func (s *scanner) take(b []byte) {
	if len(b) == 0 {
		return
	}
	s.partial = b[len(b)-1] != '\n'
	if n := int64(bytes.Count(b, newline)); s.lines+n < s.first {
		s.lines += n
		s.bytes += int64(len(b))
		return
	}
	for len(b) > 0 && s.lines < s.first+s.want {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line = b[:i+1]
		}
		s.keep(line)
		s.bytes += int64(len(line))
		b = b[len(line):]
	}
	s.lines += int64(bytes.Count(b, newline))
	s.bytes += int64(len(b))
}

var newline = []byte{'\n'}

// keep adds a line or a part of one.
func (s *scanner) keep(line []byte) {
	if s.lines >= s.first && len(s.kept) <= maxText {
		if s.kept == nil {
			s.start = s.bytes
		}
		s.kept = append(s.kept, line...)
	}
	if line[len(line)-1] == '\n' {
		s.lines++
	}
}

func (s *scanner) end() {
	if s.partial {
		s.lines++
	}
}

// result returns the text that was kept, its lines, and whether the file goes on.
func (s *scanner) result() (text string, lines int64, more bool) {
	kept := s.kept
	if len(kept) > maxText {
		kept = kept[:maxText]
		if i := bytes.LastIndexByte(kept, '\n'); i >= 0 {
			kept = kept[:i+1]
		} else {
			kept = kept[:wholeChars(kept)]
		}
	}
	if len(kept) == 0 {
		return "", 0, false
	}
	lines = int64(bytes.Count(kept, newline))
	if kept[len(kept)-1] != '\n' {
		lines++
	}
	return string(kept), lines, s.start+int64(len(kept)) < s.bytes
}
