package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

// goDirect has the frames go by the agent's socket, where its process is one
// that this process may take it from. Else they stay on the stream. An error
// means that the agent is lost.
func (c *Conn) goDirect(ctx context.Context, find func(context.Context, Hello) (int, error)) error {
	if find == nil {
		return nil
	}
	pid, err := find(ctx, c.hello)
	if err != nil {
		return nil
	}
	socket, err := takeSocket(pid, c.hello)
	if err != nil {
		return nil
	}
	return c.move(ctx, socket)
}

// move has the agent go on by a socket. That it is the agent at its other end is
// shown by the answer, which holds what only went over the first stream.
func (c *Conn) move(ctx context.Context, socket io.ReadWriteCloser) error {
	c.frames, c.stream = newFrameReader(socket), both{socket, c.stream}
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	secret := make([]byte, 16)
	rand.Read(secret)
	if err := c.out.write(typeMove, 0, secret); err != nil {
		return fmt.Errorf("%w: write to the agent: %w", sandbox.ErrUnavailable, err)
	}
	c.out.w = socket
	f, err := c.frames.next()
	if err == nil && (f.typ != typePong || !bytes.Equal(f.payload, secret)) {
		err = protocolError("another process has the agent's socket")
	}
	if err != nil {
		return fmt.Errorf("%w: the agent did not answer by its socket: %w", sandbox.ErrUnavailable, err)
	}
	return nil
}

// both is a socket, and the stream that the agent was started through, which
// lives as long.
type both struct {
	io.ReadWriteCloser
	first io.Closer
}

func (b both) Close() error { return errors.Join(b.ReadWriteCloser.Close(), b.first.Close()) }

// socket is a unix socket whose flags the other end may change, as both have one
// file: shut down first, it ends a Read or Write that blocks for that.
type socket struct{ *net.UnixConn }

func (s socket) Close() error {
	_ = s.CloseRead()
	_ = s.CloseWrite()
	return s.UnixConn.Close()
}

// takeSocket takes the socket that an agent told of out of a process, if that is
// the agent and this the socket.
func takeSocket(pid int, hello Hello) (io.ReadWriteCloser, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(process)
	if inside, err := innermostPID(pid); err != nil || inside != hello.PID {
		return nil, errors.Join(errors.New("this process is not the agent"), err)
	}
	fd, err := unix.PidfdGetfd(process, int(hello.Socket[0]), 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "agent")
	defer file.Close()
	if err := isSocket(fd, hello.Socket[1]); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return socket{conn.(*net.UnixConn)}, nil
}

// isSocket: it is a unix stream socket, and the one with that inode number.
func isSocket(fd int, inode uint64) error {
	var stat unix.Stat_t
	err := unix.Fstat(fd, &stat)
	domain, err1 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err := errors.Join(err, err1, err2); err != nil {
		return err
	}
	if domain != unix.AF_UNIX || kind != unix.SOCK_STREAM || stat.Ino != inode {
		return errors.New("this descriptor is not the agent's socket")
	}
	return nil
}

// innermostPID is a process's number in its own namespace.
func innermostPID(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			return strconv.Atoi(fields[len(fields)-1])
		}
	}
	return 0, errors.New("the kernel tells no NSpid")
}
