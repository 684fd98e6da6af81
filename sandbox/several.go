package sandbox

import (
	"encoding/binary"
	"errors"
	"io"
)

// several encodes files as blocks with their length before them: a path, content, an empty block; in the end an empty path.
type several struct {
	next    func() (path string, content io.Reader, err error)
	content io.Reader
	buf     []byte
	ready   []byte // of buf, to be read
	err     error
}

const severalBlock = 32 << 10

// Several returns the content of a Write with [WriteSeveral]. next returns the next file, and io.EOF after the last one. Any
// other error of it, or of a file's content, fails the write.
func Several(next func() (path string, content io.Reader, err error)) io.Reader {
	return &several{next: next, buf: make([]byte, 4+severalBlock)}
}

func (s *several) Read(p []byte) (int, error) {
	for len(s.ready) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.err = s.fill()
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// fill prepares the next block.
func (s *several) fill() error {
	if s.content != nil {
		n, err := s.content.Read(s.buf[4:])
		if n > 0 {
			s.block(n)
			return nil
		}
		if errors.Is(err, io.EOF) {
			s.content, err = nil, nil
			s.block(0)
		}
		return err
	}
	path, content, err := s.next()
	if err == nil && (path == "" || len(path) > severalBlock) {
		err = errors.New("the path of a file is empty or too long")
	}
	if errors.Is(err, io.EOF) {
		s.block(0)
	} else if err == nil {
		s.content = content
		s.block(copy(s.buf[4:], path))
	}
	return err
}

func (s *several) block(n int) {
	binary.BigEndian.PutUint32(s.buf, uint32(n))
	s.ready = s.buf[:4+n]
}
