package resident

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
)

// Spawned is an agent that is a process of this machine, without any isolation: for
// tests.
type Spawned struct {
	cmd  *exec.Cmd
	host *net.UnixConn
	done chan struct{} // closed when the process is reaped
}

// Spawn starts an agent. cmd must name its program and arguments, and no
// ExtraFiles. Close ends it.
func Spawn(cmd *exec.Cmd) (*Spawned, error) {
	if len(cmd.ExtraFiles) != agentEnd-3 {
		return nil, errors.New("spawn the agent: the first extra file is its own")
	}
	host, theirs, err := pair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("spawn the agent: %w", err), host.Close())
	}
	s := &Spawned{cmd: cmd, host: host, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		_ = cmd.Wait()
	}()
	return s, nil
}

// PID returns the process's.
func (s *Spawned) PID() int { return s.cmd.Process.Pid }

// Dial implements [Link].
func (s *Spawned) Dial(ctx context.Context) (Ends, error) {
	raw, err := s.host.SyscallConn()
	if err != nil {
		return Ends{}, err
	}
	return connect(func(rights []byte) error {
		var sent error
		err := raw.Control(func(fd uintptr) { sent = hailAt(ctx, int(fd), rights) })
		return errors.Join(err, sent)
	})
}

// Close ends the agent, which first ends its programs: without hosts it goes. One that
// doesn't is killed.
func (s *Spawned) Close() error {
	err := s.host.Close()
	select {
	case <-s.done:
		return err
	case <-time.After(closeTimeout):
	}
	if kill := s.cmd.Process.Kill(); !errors.Is(kill, os.ErrProcessDone) {
		err = errors.Join(err, kill)
	}
	<-s.done
	return err
}

var closeTimeout = patience.For(5 * time.Second)
