// Package agenttest starts agents as plain processes of this machine, for tests. The agent is the test binary itself
// under another name, so the race detector watches it too. Only tests can use it.
package agenttest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside"
)

const name = "wisbox-agent"

func init() {
	if os.Args[0] != name {
		return
	}
	if err := inside.Main(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Agent is an agent's process.
type Agent struct {
	*exec.Cmd
	control int
}

// Start starts an agent for a workspace. wrap is a command that starts it, such as unshare; Cmd is then the process of
// wrap. The agent ends with the test at the latest.
func Start(t testing.TB, workspace string, wrap ...string) *Agent {
	t.Helper()
	return start(t, []string{"init", workspace, workspace}, wrap)
}

// StartFew starts an agent that runs at most most programs at once.
func StartFew(t testing.TB, workspace string, most int) *Agent {
	t.Helper()
	return start(t, []string{"init", workspace, workspace, "", strconv.Itoa(most)}, nil)
}

func start(t testing.TB, args, wrap []string) *Agent {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	theirs := os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := &exec.Cmd{Path: self, Args: append([]string{name}, args...)}
	if len(wrap) > 0 {
		cmd = exec.Command(wrap[0], slices.Concat(wrap[1:], []string{"bash", "-c", `exec -a ` + name + ` "$0" "$@"`, self}, args)...)
	}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	require.NoError(t, cmd.Start())
	a := &Agent{cmd, fds[0]}
	t.Cleanup(func() {
		a.End()
		_ = cmd.Wait()
	})
	return a
}

// End ends the agent like the death of all its hosts: nobody can connect any more.
func (a *Agent) End() {
	if a.control >= 0 {
		_ = unix.Close(a.control)
		a.control = -1
	}
}

// Connect makes a connection to the agent.
func (a *Agent) Connect(t testing.TB) io.ReadWriteCloser {
	t.Helper()
	ours, theirs := pair(t, unix.SOCK_STREAM)
	a.hail(t, theirs)
	return ours
}

// ConnectBoth makes a connection that has a socket for descriptors.
func (a *Agent) ConnectBoth(t testing.TB) (io.ReadWriteCloser, *net.UnixConn) {
	t.Helper()
	frames, theirFrames := pair(t, unix.SOCK_STREAM)
	descriptors, theirDescriptors := pair(t, unix.SOCK_SEQPACKET)
	a.hail(t, theirFrames, theirDescriptors)
	return frames, descriptors
}

// hail sends the agent its ends.
func (a *Agent) hail(t testing.TB, theirs ...int) {
	t.Helper()
	require.NoError(t, unix.Sendmsg(a.control, []byte("C"), unix.UnixRights(theirs...), nil, 0))
	for _, fd := range theirs {
		_ = unix.Close(fd)
	}
}

func pair(t testing.TB, kind int) (*net.UnixConn, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fds[0]), "agent")
	defer file.Close()
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	return conn.(*net.UnixConn), fds[1]
}
