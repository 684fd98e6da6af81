package snapshot

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

// readFile takes a file's content in, until it stays the same while it is read.
func (s *scan) readFile(dir int, e *entry, buf []byte) error {
	for range tries {
		same, err := s.readOnce(dir, e, buf)
		if err != nil || same {
			return err
		}
	}
	e.unstable = true
	return nil
}

func (s *scan) readOnce(dir int, e *entry, buf []byte) (same bool, err error) {
	fd, err := s.modes.openFile(dir, e.name)
	if vanished(err) || errors.Is(err, unix.ENXIO) {
		return true, s.lookAgain(dir, e)
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	now := coarseNow()
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return false, err
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG {
		return true, s.lookAgain(dir, e)
	}
	e.take(&before)
	if err := s.readContent(fd, e, buf); err != nil {
		return false, err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return false, err
	}
	if stampOf(&before) != stampOf(&after) {
		return false, nil
	}
	if e.sure = e.ctime < now; e.sure && e.size > 0 {
		s.cache.add(content{stamp: e.stamp(), hash: e.hash, list: e.list})
	}
	return true, nil
}

// lookAgain is for a file that something else has taken the place of.
func (s *scan) lookAgain(at int, e *entry) error {
	var st unix.Stat_t
	err := unix.Fstatat(at, e.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		e.kind = gone
		return nil
	}
	e.take(&st)
	switch e.kind {
	case symlink:
		e.target, e.size = readlink(at, e.name), 0
	case folder:
		e.dir = &dir{} // its entries came too late
	}
	e.unstable = true
	if e.kind == file || e.kind == symlink && e.target == "" {
		e.kind = gone
	}
	return nil
}

func (s *scan) spend(n int64) error {
	if s.read.Add(n) > s.limits.Bytes {
		return tool.Errorf(tool.Limit, "the workspace holds more than %d bytes; remove large files, then retry", s.limits.Bytes)
	}
	return nil
}

func (s *scan) readContent(fd int, e *entry, buf []byte) (err error) {
	e.list = e.size > chunkSize
	if e.list {
		return s.readPieces(fd, e, buf)
	}
	n, err := readAt(fd, buf[:e.size], 0)
	if err != nil {
		return err
	}
	if err := s.spend(int64(n)); err != nil {
		return err
	}
	if e.size = int64(n); n == 0 {
		e.hash = Hash{}
		return nil
	}
	e.hash, err = s.put(buf[:n])
	return err
}

// readPieces takes a large file in piece by piece, at the same places for the
// same content, however the file lies on the disk. What is zero is left out.
func (s *scan) readPieces(fd int, e *entry, buf []byte) error {
	var pieces []piece
	for at := int64(0); at < e.size; {
		data, err := nextData(fd, at, e.size)
		if err != nil {
			return err
		}
		if at = data / chunkSize * chunkSize; at >= e.size {
			break
		}
		n, err := readAt(fd, buf[:min(chunkSize, e.size-at)], at)
		if err != nil {
			return err
		}
		if err := errors.Join(s.spend(int64(n)), s.pool.ctx.Err()); err != nil {
			return err
		}
		if n > 0 && !zero(buf[:n]) {
			h, err := s.put(buf[:n])
			if err != nil {
				return err
			}
			pieces = append(pieces, piece{at: at, size: int64(n), hash: h})
		}
		at += chunkSize
	}
	var err error
	e.hash, err = s.put(encodePieces(pieces))
	return err
}

// nextData is where the next byte that isn't in a hole lies, or end.
func nextData(fd int, at, end int64) (int64, error) {
	data, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return end, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return at, nil // a file system without holes
	}
	return data, err
}

// readAt reads as much of buf as the file has.
func readAt(fd int, buf []byte, at int64) (int, error) {
	total := 0
	for total < len(buf) {
		n, err := unix.Pread(fd, buf[total:], at+int64(total))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return total, err
		case n == 0:
			return total, nil
		}
		total += n
	}
	return total, nil
}

func zero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
