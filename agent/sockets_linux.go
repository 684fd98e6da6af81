package agent

import (
	"errors"

	"golang.org/x/sys/unix"
)

// check checks that a descriptor is such a socket.
func (s socket) check(fd int) error {
	protocol := unix.IPPROTO_TCP
	if s.kind == unix.SOCK_DGRAM {
		protocol = unix.IPPROTO_UDP
	}
	accepts := 0
	if s.listens {
		accepts = 1
	}
	for option, want := range map[int]int{
		unix.SO_DOMAIN: s.domain, unix.SO_TYPE: s.kind, unix.SO_PROTOCOL: protocol, unix.SO_ACCEPTCONN: accepts,
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
		if err != nil || got != want {
			return errors.Join(err, errors.New("the agent handed over something else"))
		}
	}
	return nil
}
