package kernel

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

// SocketPair returns the ends of a socket that preserves message boundaries.
func SocketPair() (int, int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], err
}

// Tell sends a message with descriptors. It returns an error if the other end is gone.
func Tell(fd int, message []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, err := retry.Interrupted(func() (int, error) {
		return 0, unix.Sendmsg(fd, message, rights, nil, unix.MSG_NOSIGNAL)
	})
	return err
}

// Hear waits for one message and reads it into buf. Zero bytes mean the end.
func Hear(fd int, buf []byte) (n int, fds []int, err error) {
	var space [64]byte // for eight descriptors
	var more, flags int
	n, err = retry.Interrupted(func() (n int, err error) {
		n, more, flags, _, err = unix.Recvmsg(fd, buf, space[:], unix.MSG_CMSG_CLOEXEC)
		return n, err
	})
	if err != nil {
		return 0, nil, err
	}
	if more > 0 {
		fds = rights(space[:more])
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		CloseAll(fds)
		return 0, nil, unix.EMSGSIZE
	}
	return n, fds, nil
}

func rights(control []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// CloseOnExec lets only the first three descriptors pass to programs that this process executes.
func CloseOnExec() {
	if unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil { // every kernel that we support has one of them
		panic("descriptors can't be listed: " + err.Error())
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// Memfd returns a memory file with the content, positioned at its start.
func Memfd(content []byte) (int, error) {
	fd, err := unix.MemfdCreate("request", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for len(content) > 0 {
		n, err := unix.Write(fd, content)
		if err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
		content = content[n:]
	}
	_, err = unix.Seek(fd, 0, 0)
	return fd, err
}

// Pipes creates pipes; true means that the program reads it. It returns our ends, which don't block, and the program's.
// If called by [AsUser], programs can reopen their own ends.
func Pipes(reads ...bool) (ours, theirs []int, err error) {
	for _, in := range reads {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			CloseAll(append(ours, theirs...))
			return nil, nil, err
		}
		our, their := p[0], p[1]
		if in {
			our, their = their, our
		}
		ours, theirs = append(ours, our), append(theirs, their)
		_ = unix.SetNonblock(our, true)
	}
	return ours, theirs, nil
}

// Streams are the pipes of a plain program, which reads the first.
var Streams = []bool{true, false, false}
