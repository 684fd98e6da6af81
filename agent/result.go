package agent

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

var knownStatus = map[sandbox.Status]bool{
	sandbox.StatusExited: true, sandbox.StatusSignaled: true, sandbox.StatusTimedOut: true,
	sandbox.StatusOOMKilled: true, sandbox.StatusPIDsLimit: true, sandbox.StatusDiskLimit: true,
	sandbox.StatusCancelled: true, sandbox.StatusSandboxLost: true,
}

// valid reports whether an exit frame makes sense.
func valid(e *wire.Exit) bool {
	return knownStatus[sandbox.Status(e.Status)] && e.Code >= -1 && e.Code <= 255 && e.Nanos >= 0 && len(e.Notices) <= 16
}

func resultOf(e *wire.Exit, tails [wire.Channels][]byte) sandbox.Result {
	return sandbox.Result{
		Status:   sandbox.Status(e.Status),
		ExitCode: e.Code,
		Signal:   signalName(e.Signal),
		Duration: time.Duration(e.Nanos),
		Stdout:   sandbox.Stream{Bytes: e.Out[0], Tail: tails[wire.Stdout]},
		Stderr:   sandbox.Stream{Bytes: e.Out[1], Tail: tails[wire.Stderr]},
		Usage:    sandbox.Usage{User: seconds(e.User), System: seconds(e.System), MaxRSS: e.MaxRSS},
		Notices:  e.Notices,
		Shared:   e.Shared,
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// signalName returns a signal's name without SIG; "" means none.
func signalName(number int) string {
	if number == 0 {
		return ""
	}
	if name := unix.SignalName(unix.Signal(number)); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return fmt.Sprint(number)
}

// StartError reports why a program could not be started as requested. It also wraps the
// fs or syscall error of the same meaning, if there is one.
type StartError wire.StartError

func (e *StartError) Error() string {
	switch e.Kind {
	case "source":
		return "load the python program: " + e.Message
	case "python":
		return "python programs can't run: " + e.Message + "; use an image with python3 3.9 or newer"
	case "internal":
		return "start the program: " + e.Message
	case "unknown":
		return "program not found; list the programs"
	case "held":
		return "another handle has this program"
	case "permission":
		return "cwd can't be entered: " + e.Message + "; give its mode back with chmod, or use another cwd"
	}
	return "cwd can't be entered: " + e.Message
}

// Unwrap returns the error that a file system call would return.
func (e *StartError) Unwrap() error {
	switch e.Kind {
	case "not_found":
		return fs.ErrNotExist
	case "not_dir":
		return unix.ENOTDIR
	case "permission":
		return fs.ErrPermission
	}
	return nil
}

// wrap returns the error of the sandbox contract.
func wrap(start *wire.StartError) error {
	e := (*StartError)(start)
	switch e.Kind {
	case "unknown":
		return fmt.Errorf("%w: %w", sandbox.ErrNotFound, e)
	case "held":
		return fmt.Errorf("%w: %w", sandbox.ErrExists, e)
	case "source", "python":
		return fmt.Errorf("%w: %w", sandbox.ErrUnsupported, e)
	case "internal":
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, e)
	}
	return fmt.Errorf("%w: %w", sandbox.ErrInvalid, e)
}
