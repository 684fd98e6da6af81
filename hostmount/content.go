package hostmount

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/holes"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/internal/sys"
)

const chunk = 8 << 20 // bytes copied between two checks of the context

// readError is an error of the source.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// content copies at most size bytes, the file's size when it was opened, even if the file grows meanwhile. It shares
// the blocks if the file system supports that, or else lets the kernel copy.
func (s *stage) content(ctx context.Context, dst, src *os.File, size int64, buf []byte) (int64, error) {
	if size == 0 {
		return 0, nil
	}
	if done, n, err := s.clone(dst, src, size); done {
		return n, err
	}
	if done, err := copySparse(ctx, dst, src, size, buf); done {
		return size, err
	}
	if size <= int64(len(buf)) {
		return copySmall(dst, src, buf[:size])
	}
	if done, n, err := s.copyRange(ctx, dst, src, size); done {
		return n, err
	}
	return copyChunks(ctx, dst, src, size, buf)
}

func (s *stage) clone(dst, src *os.File, size int64) (done bool, n int64, err error) {
	if s.noClone.Load() {
		return false, 0, nil
	}
	if err := sys.CloneFile(int(dst.Fd()), int(src.Fd())); err != nil {
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENOSYS) {
			s.noClone.Store(true)
		}
		return false, 0, nil
	}
	info, err := dst.Stat()
	if err != nil {
		return true, 0, err
	}
	if info.Size() > size {
		return true, size, dst.Truncate(size)
	}
	return true, info.Size(), nil
}

// copySparse copies a file with holes that are worth keeping; done is false if it has none.
func copySparse(ctx context.Context, dst, src *os.File, size int64, buf []byte) (done bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil || !holes.Worth(size, st.Blocks) {
		return false, nil
	}
	for at := int64(0); at < size; {
		from, to, err := holes.Data(int(src.Fd()), at, size)
		if err != nil {
			return true, readError{err}
		}
		for ; from < to; from += int64(len(buf)) {
			part := buf[:min(int64(len(buf)), to-from)]
			n, err := src.ReadAt(part, from)
			if err != nil && !errors.Is(err, io.EOF) {
				return true, readError{err}
			}
			if _, err := dst.WriteAt(part[:n], from); err != nil {
				return true, err
			}
			if err := ctx.Err(); err != nil {
				return true, err
			}
		}
		at = to
	}
	return true, dst.Truncate(size)
}

func copySmall(dst, src *os.File, buf []byte) (int64, error) {
	n, err := io.ReadFull(src, buf)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return 0, readError{err}
	}
	_, err = dst.Write(buf[:n])
	return int64(n), err
}

// copyRange returns done if copy_file_range works here.
func (s *stage) copyRange(ctx context.Context, dst, src *os.File, size int64) (done bool, n int64, err error) {
	if s.noRange.Load() {
		return false, 0, nil
	}
	for n < size {
		if err := ctx.Err(); err != nil {
			return true, n, err
		}
		k, err := retry.Interrupted(func() (int, error) {
			return sys.CopyRange(int(dst.Fd()), int(src.Fd()), int(min(size-n, chunk)))
		})
		switch {
		case err != nil && n == 0 && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT):
			s.noRange.Store(true)
			return false, 0, nil
		case errors.Is(err, unix.EIO):
			return true, n, readError{err}
		case err != nil:
			return true, n, err
		case k == 0: // the file shrank
			return true, n, nil
		}
		n += int64(k)
	}
	return true, n, nil
}

func copyChunks(ctx context.Context, dst, src *os.File, size int64, buf []byte) (n int64, err error) {
	for n < size {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := src.Read(buf[:min(size-n, int64(len(buf)))])
		if k == 0 && errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, readError{err}
		}
		if _, err := dst.Write(buf[:k]); err != nil {
			return n, err
		}
		n += int64(k)
	}
	return n, nil
}
