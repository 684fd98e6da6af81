package snapshot

import (
	"bytes"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/holes"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/tool"
)

// readFile reads a file's content again until the file doesn't change during the reading.
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
		s.lookAgain(dir, e)
		return true, nil
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
		s.lookAgain(dir, e)
		return true, nil
	}
	e.take(&before)
	if err := errors.Join(s.readContent(fd, &before, e, buf), s.noteAttributes(fd, e)); err != nil {
		return false, err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return false, err
	}
	if stampOf(&before) != stampOf(&after) {
		return false, nil
	}
	if e.sure = e.ctime < now; e.sure && (e.size > 0 || e.more != nil) {
		s.cache.add(content{stamp: e.stamp(), hash: e.hash, list: e.list, more: e.more})
	}
	return true, nil
}

// lookAgain looks at a name whose file was replaced by something else.
func (s *scan) lookAgain(at int, e *entry) {
	var st unix.Stat_t
	if err := unix.Fstatat(at, e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		e.kind = gone
		return
	}
	e.take(&st)
	e.more = nil
	switch e.kind {
	case symlink:
		e.target, e.size = readlink(at, e.name), 0
	case folder:
		e.dir = &dir{} // its entries are too late for this scan
	}
	e.unstable = true
	if e.kind == file || e.kind == symlink && e.target == "" {
		e.kind = gone
	}
}

func (s *scan) spend(n int64) error {
	if s.read.Add(n) > s.limits.Bytes {
		return tool.Errorf(tool.Limit, "the workspace has more than %d bytes; remove large files, then retry", s.limits.Bytes)
	}
	return nil
}

// readContent reads an open file. It skips holes and doesn't keep pages of zeros. A small file
// without these is one object; others are a list of pieces.
func (s *scan) readContent(fd int, st *unix.Stat_t, e *entry, buf []byte) (err error) {
	r := &fileReader{scan: s, fd: fd, size: e.size, dense: st.Blocks*512 >= e.size && e.size <= chunkSize}
	if e.size > chunkSize {
		e.list = true
		e.hash, err = r.pieces(buf)
		return err
	}
	n, err := r.chunk(buf[:e.size], 0)
	if err != nil {
		return err
	}
	e.size, e.list, e.hash = int64(n), false, Hash{}
	switch first := firstRun(buf[:n], 0); {
	case n == 0:
	case first.size == n:
		e.hash, err = s.put(buf[:n])
	default:
		e.list = true
		e.hash, err = r.list(nil, buf[:n], 0)
	}
	return err
}

// fileReader reads one file by its extents on the disk.
type fileReader struct {
	scan  *scan
	fd    int
	size  int64
	dense bool // there is no hole

	data, hole int64 // an extent, and the end of it
	held       int   // of the budget, for pieces
}

// pieces reads a large file piece by piece. It cuts the same content at the same places, whatever
// the layout on the disk.
func (r *fileReader) pieces(buf []byte) (h Hash, err error) {
	var list []piece
	defer func() { r.scan.budget.Release(r.held) }()
	for at := int64(0); at < r.size; at += chunkSize {
		if err := r.extent(at); err != nil {
			return h, err
		}
		if at = max(at, r.data) / chunkSize * chunkSize; at >= r.size {
			break
		}
		n, err := r.chunk(buf[:min(chunkSize, r.size-at)], at)
		if err != nil {
			return h, err
		}
		if list, err = r.cut(list, buf[:n], at); err != nil {
			return h, err
		}
	}
	return r.scan.put(encodePieces(list))
}

// list is like pieces, after some content was read already.
func (r *fileReader) list(list []piece, b []byte, at int64) (h Hash, err error) {
	defer func() { r.scan.budget.Release(r.held) }()
	if list, err = r.cut(list, b, at); err != nil {
		return h, err
	}
	return r.scan.put(encodePieces(list))
}

// cut adds the pieces of a chunk, without its zeros.
func (r *fileReader) cut(list []piece, b []byte, at int64) ([]piece, error) {
	for from := 0; ; {
		run := firstRun(b, from)
		if run.size == 0 {
			return list, r.scan.budget.Step(1)
		}
		from = run.at + run.size
		r.held += 2 * pieceMemory // including its place in a list
		if err := r.scan.budget.Hold(2 * pieceMemory); err != nil {
			return nil, err
		}
		h, err := r.scan.put(b[run.at:from])
		if err != nil {
			return nil, err
		}
		list = append(list, piece{at: at + int64(run.at), size: int64(run.size), hash: h})
	}
}

// run is a part of a chunk.
type run struct{ at, size int }

// maxGap is the number of consecutive zeros that a piece may have: many small pieces cost more.
const maxGap = 4 * page

// firstRun returns the first part of b, from a page on, that begins and ends with pages
// that aren't zero and has no more than maxGap zeros in a row. Its size is 0 if there is none.
func firstRun(b []byte, from int) run {
	for from < len(b) && zero(b[from:min(from+page, len(b))]) {
		from += page
	}
	if from >= len(b) {
		return run{}
	}
	end := from + page
	for at := end; at < len(b) && at-end <= maxGap; at += page {
		if !zero(b[at:min(at+page, len(b))]) {
			end = at + page
		}
	}
	return run{at: from, size: min(end, len(b)) - from}
}

func zero(b []byte) bool { return bytes.Equal(b, zeroPage[:len(b)]) }

// extent finds the first extent that ends after at.
func (r *fileReader) extent(at int64) (err error) {
	if r.dense {
		r.hole = r.size
		return nil
	}
	if at < r.hole {
		return nil
	}
	if r.data, r.hole, err = holes.Data(r.fd, at, r.size); err != nil {
		r.hole = r.size
		return err
	}
	return r.scan.budget.Step(1)
}

// chunk fills b from an offset of the file and returns the number of bytes, which is smaller if
// the file has become shorter.
func (r *fileReader) chunk(b []byte, at int64) (int, error) {
	end := at + int64(len(b))
	for pos := at; pos < end; {
		if err := r.extent(pos); err != nil {
			return 0, err
		}
		from, to := min(max(r.data, pos), end), min(r.hole, end)
		clear(b[pos-at : from-at])
		if from == end {
			break
		}
		n, err := readAt(r.fd, b[from-at:to-at], from)
		if err := errors.Join(err, r.scan.spend(int64(n)), r.scan.pool.ctx.Err()); err != nil {
			return 0, err
		}
		if pos = from + int64(n); pos < to {
			return int(pos - at), nil
		}
	}
	return len(b), nil
}

// readAt reads as much of buf as the file has.
func readAt(fd int, buf []byte, at int64) (int, error) {
	total := 0
	for total < len(buf) {
		n, err := retry.Interrupted(func() (int, error) { return unix.Pread(fd, buf[total:], at+int64(total)) })
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return total, err
		case n == 0:
			return total, nil
		}
		total += n
	}
	return total, nil
}
