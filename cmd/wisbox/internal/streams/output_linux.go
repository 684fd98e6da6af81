package streams

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// NewOutput returns an output. If it is a pipe, large pieces reach it without a copy.
func NewOutput(file *os.File, end context.CancelCauseFunc) io.Writer {
	o := Output{file, end}
	if st, err := file.Stat(); err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		return pipe{o}
	}
	return o
}

// pipe is an output into which the kernel moves bytes from a socket. Copying them took a third
// longer, see docs/adr/0032-where-a-commands-time-goes.md.
type pipe struct{ Output }

// mostMoves bounds the system calls for one frame. Each call moves something or finds the pipe
// full; the rest is then copied.
const mostMoves = 1 << 20

// MoveFrom implements the Mover of package hold. It copies what the kernel doesn't move.
func (p pipe) MoveFrom(from *io.LimitedReader) error {
	err := p.move(from)
	if err != nil || from.N > 0 {
		_, err = io.Copy(p.Output, from)
	}
	return err
}

func (p pipe) move(from *io.LimitedReader) error {
	socket, ok := from.R.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	goOn := true
	for range mostMoves {
		if !goOn || from.N <= 0 {
			break
		}
		var n int64
		ready(int(p.File.Fd()), unix.POLLOUT, -1)
		n, goOn, err = p.splice(raw, from.N)
		from.N -= n
	}
	return err
}

// splice waits for bytes, moves them, and reports whether to go on: it returns false at the end of
// the input and after an error. It never waits for room in the pipe, because that would prevent a
// close of the socket.
func (p pipe) splice(from syscall.RawConn, most int64) (n int64, goOn bool, err error) {
	full := false
	closed := from.Read(func(fd uintptr) bool {
		n, err = unix.Splice(int(fd), nil, int(p.File.Fd()), nil, int(most), unix.SPLICE_F_NONBLOCK)
		full = errors.Is(err, unix.EAGAIN) && ready(int(fd), unix.POLLIN, 0)
		return full || !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case closed != nil:
		return 0, false, closed
	case full, errors.Is(err, unix.EINTR):
		return 0, true, nil
	case err != nil:
		return 0, false, err
	}
	return n, n > 0, nil
}

// ready reports whether a descriptor becomes ready, or fails, within timeout milliseconds; a
// negative timeout means no limit.
func ready(fd int, events int16, timeout int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, timeout)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}
