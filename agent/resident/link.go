package resident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	// Path is where a container has the agent.
	Path = "/.wisbox-agent"

	agentEnd = 3 // the agent's descriptor, on which it waits for hosts
	hostEnd  = 4 // in the agent's process too: what a host takes
	hail     = "C"
)

// InitArgv returns what pid 1 of a container executes, whose programs have that PATH and of
// which so many run at once; 0 is what the agent can.
func InitArgv(path string, most int) []string {
	argv := []string{Path, "init", "", "", path}
	if most > 0 {
		argv = append(argv, strconv.Itoa(most))
	}
	return argv
}

// ServeArgv returns the arguments of a program that becomes the agent, whose programs have that
// PATH: it listens at a socket for uid 0, as [Socket] needs it.
func ServeArgv(path, socket string) []string {
	return []string{"wisbox-agent", "init", "", "", path, "", socket}
}

// RelayArgv returns what to execute as uid 0, attached, to reach a container's agent by
// stdin and stdout.
func RelayArgv() []string { return []string{Path, "relay"} }

// Link is a way to an agent. Dial makes one more connection, and may be called from
// many goroutines. If the agent isn't ready yet it waits, as long as ctx allows.
type Link interface {
	Dial(ctx context.Context) (Ends, error)
}

// Ends are the host's ends of one connection.
type Ends struct {
	// Frames carries the protocol of package agent.
	Frames io.ReadWriteCloser
	// Descriptors carries descriptors from the agent, nil where the link can't.
	Descriptors *net.UnixConn
}

// Close closes what there is.
func (e Ends) Close() error {
	var errs []error
	if e.Frames != nil {
		errs = append(errs, e.Frames.Close())
	}
	if e.Descriptors != nil {
		errs = append(errs, e.Descriptors.Close())
	}
	return errors.Join(errs...)
}

// ErrNoWay is wrapped by the error of a link that can't lead to this agent, ever.
var ErrNoWay = errors.New("the agent can't be reached this way")

// FirstOf tries links in order: the next one where one wraps [ErrNoWay].
type FirstOf []Link

// Dial implements [Link].
func (f FirstOf) Dial(ctx context.Context) (Ends, error) {
	err := ErrNoWay
	for _, link := range f {
		var ends Ends
		if ends, err = link.Dial(ctx); err == nil || !errors.Is(err, ErrNoWay) {
			return ends, err
		}
	}
	return Ends{}, err
}

// pair returns a socket pair: ours, and the one to send.
func pair(kind int) (*net.UnixConn, *os.File, error) {
	fds, err := sys.SocketPair(kind)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "agent")
	defer ours.Close() // FileConn copies it
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// connect makes a connection and sends the agent its ends by send.
func connect(send func(rights []byte) error) (ends Ends, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, ends.Close())
			ends = Ends{}
		}
	}()
	frames, theirFrames, err := pair(unix.SOCK_STREAM)
	if err != nil {
		return ends, err
	}
	ends.Frames = frames
	defer theirFrames.Close()
	descriptors, theirDescriptors, err := pair(unix.SOCK_SEQPACKET)
	if err != nil {
		return ends, err
	}
	ends.Descriptors = descriptors
	defer theirDescriptors.Close()
	return ends, send(unix.UnixRights(int(theirFrames.Fd()), int(theirDescriptors.Fd())))
}

// hailTimes bounds how often an agent is asked that has no room: ctx ends it before.
var hailTimes = retry.Times{Count: 10_000, Pause: patience.For(5 * time.Millisecond)}

// hailAt sends rights to the agent over a copy of its descriptor, as soon as there
// is room. It never blocks in the kernel: whose socket it is, decides ctx.
func hailAt(ctx context.Context, fd int, rights []byte) error {
	err := hailTimes.Do(ctx, noRoom, func() error {
		_, err := unix.SendmsgN(fd, []byte(hail), rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return err
	})
	if noRoom(err) {
		return fmt.Errorf("%w: the agent takes no connection: %w", cmp.Or(ctx.Err(), sandbox.ErrUnavailable), err)
	}
	return err
}

func noRoom(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ETOOMANYREFS)
}
