package agent

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

// exit is an exit frame.
type exit struct {
	Status  sandbox.Status `json:"status"`
	Code    int            `json:"code"`
	Signal  int            `json:"signal"` // 0 is none
	Nanos   int64          `json:"ns"`
	Out     [2]int64       `json:"out"`    // bytes of stdout and stderr
	User    float64        `json:"user"`   // seconds
	System  float64        `json:"system"` // seconds
	MaxRSS  int64          `json:"rss"`    // bytes
	Shared  bool           `json:"shared"`
	Notices []string       `json:"notices"`
	Error   *StartError    `json:"error"`
}

var knownStatus = map[sandbox.Status]bool{
	sandbox.StatusExited: true, sandbox.StatusSignaled: true, sandbox.StatusTimedOut: true,
	sandbox.StatusOOMKilled: true, sandbox.StatusPIDsLimit: true, sandbox.StatusDiskLimit: true,
	sandbox.StatusCancelled: true, sandbox.StatusSandboxLost: true,
}

func (e *exit) valid() bool {
	return knownStatus[e.Status] && e.Code >= -1 && e.Code <= 255 && e.Nanos >= 0 && len(e.Notices) <= 16
}

func (e *exit) result(tails [channels][]byte) sandbox.Result {
	return sandbox.Result{
		Status:   e.Status,
		ExitCode: e.Code,
		Signal:   signalName(e.Signal),
		Duration: time.Duration(e.Nanos),
		Stdout:   sandbox.Stream{Bytes: e.Out[0], Tail: tails[chanStdout]},
		Stderr:   sandbox.Stream{Bytes: e.Out[1], Tail: tails[chanStderr]},
		Usage:    sandbox.Usage{User: seconds(e.User), System: seconds(e.System), MaxRSS: e.MaxRSS},
		Notices:  e.Notices,
		Shared:   e.Shared,
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// signalName is a signal's name without SIG; "" is none.
func signalName(number int) string {
	if number == 0 {
		return ""
	}
	if name := unix.SignalName(unix.Signal(number)); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return fmt.Sprint(number)
}

// StartError says why a program could not be started as asked. It also wraps
// the fs or syscall error of the same meaning, where there is one.
type StartError struct {
	// Kind is not_found, not_dir, escape, permission or invalid, all of Cmd.Dir;
	// source, of a Python program that can't be loaded; or internal.
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (e *StartError) Error() string {
	switch e.Kind {
	case "source":
		return "load the python program: " + e.Message
	case "internal":
		return "start the program: " + e.Message
	case "permission":
		return "cwd can't be entered: " + e.Message + "; give its mode back with chmod, or take another cwd"
	}
	return "cwd can't be entered: " + e.Message
}

// Unwrap gives the error that a file system call would have given.
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

// wrap gives the error of the sandbox contract.
func (e *StartError) wrap() error {
	switch e.Kind {
	case "source":
		return fmt.Errorf("%w: %w", sandbox.ErrUnsupported, e)
	case "internal":
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, e)
	}
	return fmt.Errorf("%w: %w", sandbox.ErrInvalid, e)
}
