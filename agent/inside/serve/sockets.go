package serve

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
)

const queued = 128 // connections that wait to be accepted

// mostSockets returns the maximum number of sockets that a host may use through frames: the agent also needs
// descriptors for programs.
func mostSockets() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return leastSockets
	}
	return int(max(leastSockets, min(files.Cur/2, 1<<12)))
}

const leastSockets = 64

// handOver answers one request for a socket. The host then has the only copy, so a listener ends with it.
func (c *conn) handOver() {
	var buf [256]byte
	n, fds, err := kernel.Hear(c.descriptors, buf[:])
	kernel.CloseAll(fds)
	if again(err) {
		return
	}
	if err != nil || n == 0 {
		c.endDescriptors()
		return
	}
	fd, err := makeSocket(string(buf[:n]))
	if err != nil {
		err = kernel.Tell(c.descriptors, []byte(wire.Refused+err.Error()))
	} else {
		err = kernel.Tell(c.descriptors, []byte(wire.Granted), fd)
		_ = unix.Close(fd)
	}
	if err != nil { // the host requests more than it reads
		c.endDescriptors()
	}
}

func (c *conn) endDescriptors() {
	if c.descriptors >= 0 {
		c.server.unwatch(c.descriptors)
		_ = unix.Close(c.descriptors)
		c.descriptors = -1
	}
}

// makeSocket creates the requested socket in this process's network.
func makeSocket(request string) (fd int, err error) {
	words := strings.Fields(request)
	if len(words) == 1 && words[0] == wire.AskSocket {
		return unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	}
	if len(words) == 1 && words[0] == wire.AskSix {
		return unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	}
	if len(words) != 3 {
		return -1, errors.New("unknown request")
	}
	addr, err := address(words[1], words[2])
	if err != nil {
		return -1, err
	}
	switch words[0] {
	case wire.AskListen:
		fd, err = bound(unix.SOCK_STREAM, unix.IPPROTO_TCP, addr)
		if err == nil {
			err = unix.Listen(fd, queued)
		}
	case wire.AskUDP:
		fd, err = bound(unix.SOCK_DGRAM, unix.IPPROTO_UDP, addr)
	default:
		return -1, errors.New("unknown request")
	}
	if err != nil && fd >= 0 {
		_ = unix.Close(fd)
		fd = -1
	}
	return fd, err
}

func bound(kind, protocol int, addr *unix.SockaddrInet4) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, err
	}
	if kind == unix.SOCK_STREAM { // a port that was just released can be used again
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	return fd, unix.Bind(fd, addr)
}

func address(host, port string) (*unix.SockaddrInet4, error) {
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is4() {
		return nil, errors.New("the address must be one of IPv4")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, errors.New("the port must be a number up to 65535")
	}
	return &unix.SockaddrInet4{Addr: addr.As4(), Port: int(number)}, nil
}
