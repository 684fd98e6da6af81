package inside

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// relay connects stdin and stdout to the agent's socket, for hosts that can't take a descriptor out of the agent. It
// ends when either side ends.
func relay() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: relaySocket}); err != nil {
		return fmt.Errorf("the agent doesn't serve: %w", err)
	}
	agent := os.NewFile(uintptr(fd), "agent")
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go pass(agent, os.Stdin)
	go pass(os.Stdout, agent)
	<-ended
	return nil
}
