package resident

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
)

// takeTimeout is how long a process may take to become the agent. After that it
// isn't one: behind a forwarded socket may be another machine's container.
var takeTimeout = patience.For(2 * time.Second)

// Taken is the agent of a container of this machine, of whose process a descriptor
// is copied.
type Taken struct {
	// PID is the container's first process as this machine numbers it, now. It wraps
	// [ErrNoWay] where that is none of this machine's.
	PID func(ctx context.Context) (int, error)
}

// Dial implements [Link].
func (t Taken) Dial(ctx context.Context) (Ends, error) {
	pid, err := t.PID(ctx)
	if err != nil {
		return Ends{}, err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return Ends{}, fmt.Errorf("%w: hold its process: %w", ErrNoWay, err)
	}
	defer unix.Close(process)
	fd, err := take(ctx, process, pid)
	if err != nil {
		return Ends{}, err
	}
	defer unix.Close(fd)
	return connect(func(rights []byte) error { return hailAt(ctx, fd, rights) })
}

// errNotYet is of a process that may be about to become the agent.
var errNotYet = errors.New("the process is not the agent yet")

// take waits until the process is the agent, and copies its descriptor.
func take(ctx context.Context, process, pid int) (int, error) {
	limited, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	for wait := newWait(); ; {
		fd, err := tryTake(process, pid)
		if err == nil || !errors.Is(err, errNotYet) {
			return fd, err
		}
		if !wait.next(limited) {
			if ctx.Err() != nil {
				return -1, fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return -1, fmt.Errorf("%w: %w", ErrNoWay, err)
		}
	}
}

// tryTake looks at a process that is held, so that its number stays its own.
func tryTake(process, pid int) (int, error) {
	if err := isAgent(pid); err != nil {
		return -1, err
	}
	fd, err := unix.PidfdGetfd(process, hostEnd, 0)
	switch {
	case errors.Is(err, unix.EBADF):
		return -1, errNotYet
	case err != nil: // no such call, no right, no process
		return -1, fmt.Errorf("%w: copy its descriptor: %w", ErrNoWay, err)
	}
	if !isHostEnd(fd) {
		unix.Close(fd)
		return -1, errNotYet // of what starts the agent
	}
	return fd, nil
}

// isAgent: it is the first process of its namespace and executes the agent.
func isAgent(pid int) error {
	inside, err := innermostPID(pid)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoWay, err)
	}
	if inside != 1 {
		return fmt.Errorf("%w: process %d is not the first of its namespace", ErrNoWay, pid)
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoWay, err)
	}
	if strings.TrimSuffix(exe, " (deleted)") != Path { // with the state root, say
		return errNotYet
	}
	return nil
}

// isHostEnd: it is a socket of the kind that the agent makes for hosts.
func isHostEnd(fd int) bool {
	domain, err1 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err1 == nil && err2 == nil && domain == unix.AF_UNIX && kind == unix.SOCK_SEQPACKET
}

// innermostPID returns a process's number in its own namespace.
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
	return 0, errors.New("the kernel reports no NSpid")
}
