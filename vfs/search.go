package vfs

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/retry"
)

const (
	maxGrepFile = 1 << 30   // bytes; a larger file is skipped
	binaryBlock = 64 << 10  // of a file: with a NUL in it, it is binary
	readBlock   = 256 << 10 // bytes of a file read at once
	maxGrepLine = 4 << 20   // bytes of a line; the file is not searched further
)

// fileSearch searches one file after the other. It is for one goroutine, and reads each file once,
// a block at a time.
type fileSearch struct {
	b      *budget.Budget
	finder lineFinder
	want   *grepQuery
	buf    []byte

	fill    int // bytes of buf in use
	pos     int // searched up to here
	counted int // lines are counted up to here
	line    int // number of the line at counted
	matches []GrepMatch
	memory  int
	full    bool // the file has more matches than an answer holds
}

type outcome int

const (
	searched outcome = iota
	skipped
	ignored // it is not a file
)

// search searches the open file fd.
func (s *fileSearch) search(fd int, dev uint64) (outcome, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return skipped, nil // an unreadable file is skipped and counted
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return ignored, nil
	case uint64(st.Dev) != dev, st.Size > maxGrepFile:
		return skipped, nil
	}
	s.fill, s.pos, s.counted, s.line = 0, 0, 0, 1
	s.matches, s.memory, s.full = nil, 0, false
	for total := int64(0); ; {
		n, err := s.read(fd)
		if err != nil {
			return skipped, nil // as above
		}
		if total == 0 && bytes.IndexByte(s.buf[:min(n, binaryBlock)], 0) >= 0 {
			return skipped, nil
		}
		total += int64(n)
		last := n == 0 || total >= st.Size && s.fill < len(s.buf)
		if err := s.block(last); err != nil {
			return searched, err
		}
		switch {
		case last || s.full:
			return searched, nil
		case total > maxGrepFile || !s.shift():
			s.finder.cuts.add(fileCut)
			return searched, nil
		}
	}
}

func (s *fileSearch) read(fd int) (int, error) {
	if s.buf == nil {
		s.buf = make([]byte, readBlock)
		_ = s.b.Hold(readBlock)
	}
	n, err := retry.Interrupted(func() (int, error) { return unix.Read(fd, s.buf[s.fill:]) })
	s.fill += max(n, 0)
	return n, err
}

// block searches the complete lines of the buffer.
func (s *fileSearch) block(last bool) error {
	end := s.fill
	if !last {
		end = s.pos + linesBack(s.buf[s.pos:s.fill], s.want.after)
	}
	if end <= s.pos {
		return nil
	}
	err := s.finder.find(s.b.Context(), s.buf[:end], s.pos, s.hit)
	s.pos = end
	return err
}

// linesBack returns the start of the n lines before the last newline of b.
func linesBack(b []byte, n int) int {
	end := len(b)
	for range n + 1 {
		i := bytes.LastIndexByte(b[:end], '\n')
		if i < 0 {
			return 0
		}
		end = i
	}
	return end + 1
}

// shift makes room for the next block. It drops the searched lines, except for those that may be
// shown before a match.
func (s *fileSearch) shift() bool {
	keep := s.lineStart(s.pos, s.want.before)
	s.line += bytes.Count(s.buf[s.counted:max(keep, s.counted)], newline)
	s.counted = max(s.counted, keep) - keep
	s.fill = copy(s.buf, s.buf[keep:s.fill])
	s.pos -= keep
	if s.fill < len(s.buf) {
		return true
	}
	if len(s.buf) >= maxGrepLine {
		return false
	}
	if s.b.Hold(len(s.buf)) != nil {
		return false
	}
	s.buf = slices.Grow(s.buf, len(s.buf))[:2*len(s.buf)]
	return true
}

// lineStart returns the start of the n-th line before the line that starts at at.
func (s *fileSearch) lineStart(at, n int) int {
	for ; n > 0 && at > 0; n-- {
		at = bytes.LastIndexByte(s.buf[:at-1], '\n') + 1
	}
	return at
}

func (s *fileSearch) hit(h lineHit) bool {
	s.line += bytes.Count(s.buf[s.counted:h.start], newline)
	s.counted = h.start
	m := GrepMatch{
		LineNumber: s.line, Line: lineText(s.buf[h.start:h.end]),
		Column: utf8.RuneCount(s.buf[h.start:h.match]) + 1,
		Before: s.linesBefore(h.start), After: s.linesAfter(h.end),
	}
	s.matches = append(s.matches, m)
	s.memory += m.size()
	s.full = s.b.Hold(m.size()) != nil || len(s.matches) > s.want.max || s.memory > answerMemory
	return !s.full
}

func (s *fileSearch) linesBefore(at int) []string {
	var lines []string
	for from := s.lineStart(at, s.want.before); from < at; {
		end := lineEnd(s.buf[:at], from, 0)
		lines = append(lines, lineText(s.buf[from:end]))
		from = end + 1
	}
	return lines
}

func (s *fileSearch) linesAfter(end int) []string {
	var lines []string
	for from := end + 1; from < s.fill && len(lines) < s.want.after; {
		end = lineEnd(s.buf[:s.fill], from, 0)
		lines = append(lines, lineText(s.buf[from:end]))
		from = end + 1
	}
	return lines
}

// lineText returns a line for an answer: cut, with invalid UTF-8 replaced.
func lineText(line []byte) string {
	line = line[:min(len(line), maxLineShow*utf8.UTFMax)]
	s, _ := firstChars(string(line), maxLineShow)
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
