// Package inside is the agent's program: it prepares and runs each mode.
package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/files"
	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/inside/monitor"
	"github.com/wisbox/wisbox/agent/inside/serve"
)

const (
	workspace = "/workspace"
	secrets   = "/run/secrets"

	// Descriptors of the control socket: the agent's end, and, if the agent is pid 1, the end that a host takes out of
	// it.
	control = 3
	taken   = 4

	// The relay's socket is in a directory that only uid 0 can access.
	socketDir   = "/run/wisbox"
	relaySocket = socketDir + "/agent"
)

// Main runs a mode of the agent.
func Main(args []string) error {
	mode, args := first(args, "init")
	switch mode {
	case "init":
		kernel.Relaxed(func() { again(args) })
		return serveAll(args) // without re-executing
	case "serve":
		return serveAll(args)
	case "monitor":
		at, _ := first(args, workspace)
		monitor.Run(at)
		return nil
	case "relay":
		return relay()
	case "files":
		return files.Main()
	}
	return fmt.Errorf("unknown mode %q; use init, monitor, relay or files", mode)
}

// again executes this program again to serve. It returns only if that fails.
func again(args []string) {
	_ = unix.Exec("/proc/self/exe", append([]string{os.Args[0], "serve"}, args...), os.Environ())
}

func first(args []string, otherwise string) (string, []string) {
	switch {
	case len(args) == 0:
		return otherwise, nil
	case args[0] == "":
		return otherwise, args[1:]
	}
	return args[0], args[1:]
}

func serveAll(args []string) error {
	runtime.LockOSThread() // rights belong to the thread, and its children inherit them
	kernel.Punctual()
	runtime.GOMAXPROCS(2)
	at, args := first(args, workspace)
	keep, args := first(args, secrets)
	path, args := first(args, kernel.DefaultPath)
	text, args := first(args, "0")
	socket, _ := first(args, "")
	most, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("the number of programs at once is %q", text)
	}
	if resolved, err := filepath.EvalSymlinks(at); err == nil {
		at = resolved
	}
	kernel.Name("wisbox-agent")
	listener := -1
	if os.Getpid() == 1 {
		if err := makeControl(); err != nil {
			return err
		}
		ownModes()
		listener = listen()
	}
	if socket != "" {
		if listener, err = bind(socket); err != nil {
			return fmt.Errorf("listen for hosts: %w", err)
		}
	}
	kernel.CloseOnExec()
	if err := unix.SetNonblock(control, true); err != nil {
		return err
	}
	return serve.Serve(serve.Options{
		Control: control, Listener: listener, Workspace: at, Secrets: keep, Path: path, Monitor: []string{"wisbox-agent", "monitor", at}, Most: most,
	})
}

// makeControl creates a socket pair at the descriptors where a host expects it. It fills the lower descriptors first,
// so that the new ends don't occupy their own target numbers.
func makeControl() error {
	for fd := 0; fd <= taken; {
		var err error
		if fd, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		if fd > taken {
			_ = unix.Close(fd)
		}
	}
	ours, hosts, err := kernel.SocketPair()
	if err != nil {
		return err
	}
	err = errors.Join(unix.Dup3(hosts, taken, unix.O_CLOEXEC), unix.Dup3(ours, control, unix.O_CLOEXEC))
	return errors.Join(err, unix.Close(ours), unix.Close(hosts))
}

// listen returns the relay's socket, or -1 if it can't be created, e.g. in an image without /run.
func listen() int {
	if unix.Mkdir(socketDir, 0o700) != nil {
		return -1
	}
	fd, err := bind(relaySocket)
	if err != nil {
		return -1
	}
	return fd
}

// bind listens at a path, and replaces the socket of an earlier agent that was killed.
func bind(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	_ = unix.Unlink(path) // if the file stays, bind fails
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
