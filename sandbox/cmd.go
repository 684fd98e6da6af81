package sandbox

import (
	"io"
	"time"
)

// Cmd is one program to run. Exactly one of Argv and Python is set.
type Cmd struct {
	// Argv is the program, found on the fixed PATH, and its arguments. No shell.
	Argv []string
	// Python runs in a Python interpreter instead, see [PythonProgram].
	Python *PythonProgram
	// Dir is relative to the workspace; "" is the workspace itself. An absolute one is
	// a directory of the sandbox; where a backend enters only the workspace, one
	// outside of it wraps ErrInvalid.
	Dir string
	// Env is added to the sandbox's variables ("KEY=value"), later ones win.
	Env []string
	// Stdin is copied to the program until it ends; nil is the end of file at once.
	Stdin io.Reader
	// Stdout and Stderr receive the streams, each from one goroutine; nil
	// discards at the source (the bytes are counted). A Write that blocks
	// slows that stream down, and the program, but never another program.
	Stdout, Stderr io.Writer
	// Capture cuts the streams at the source; nil passes everything on.
	Capture *Capture
	// Control is a private channel: the program reads In at descriptor 3 and
	// writes Out at descriptor 4. With Python, main gets the two as files.
	Control *Control
	// Timeout after which everything is killed and the Result says
	// StatusTimedOut; 0 is none. It is kept inside the sandbox: a stopped or
	// dead caller doesn't extend it.
	Timeout time.Duration
	// Lifetime is what may stay when the call has ended; "" is [LifetimeCall].
	Lifetime Lifetime
	// Label is kept with a program that [Lifetime.Detaches], at most [MaxLabel] bytes without
	// NUL, for whoever finds it by [Detacher]. Others have none.
	Label string
	// TTY gives the program a terminal as its three streams (Stderr stays empty).
	TTY *WinSize
}

// Lifetime is how long what a Cmd starts may live. Every program ends with its sandbox at
// the latest.
type Lifetime string

const (
	// LifetimeCall: when the call returns nothing of it runs.
	LifetimeCall Lifetime = ""
	// LifetimeSelf: the program's descendants may stay when it has ended.
	LifetimeSelf Lifetime = "self"
	// LifetimeLeft: as [LifetimeDetached], and its descendants may stay when it has ended.
	LifetimeLeft Lifetime = "left"
	// LifetimeDetached: the program outlives whoever started it, see [Detacher]. It can
	// have no Control, isn't a Python program, and its Capture is not heeded.
	LifetimeDetached Lifetime = "detached"
)

// Detaches reports whether a program outlives whoever started it.
func (l Lifetime) Detaches() bool { return l == LifetimeDetached || l == LifetimeLeft }

// MaxLabel bounds [Cmd.Label], in bytes.
const MaxLabel = 8 << 10

// PythonProgram is trusted Python source of wisbox's own that runs as one
// program: Source is executed as a module, then its function main() is called.
//
// A backend may execute Source once, ahead of time and with more rights than a
// program has, in an interpreter that it forks for every call: so the module
// body only imports and defines. Untrusted code reaches it through Control.
// main runs with a program's rights, in its directory and environment.
type PythonProgram struct {
	Name   string // for messages: "evaluate"
	Source string
}

// Capture bounds what a program's streams cost: each stream passes its first
// Forward bytes on to the Cmd's writer; what follows is read and thrown away in
// the sandbox at the pipe's speed, but for the last Tail bytes, which come with
// the Result.
type Capture struct {
	Forward int64
	Tail    int
}

// Control is a pair of private streams. In may be nil (end of file at once).
// What the program writes to Out comes after all that it had written to its
// Stdout and Stderr: when Out's Write is called, theirs have returned.
type Control struct {
	In  io.Reader
	Out io.Writer
}

// WinSize is a terminal's size in characters.
type WinSize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Status is how a program ended; the values are the public contract (docs/tools.md).
type Status string

const (
	StatusExited      Status = "exited"       // by itself, ExitCode says how
	StatusSignaled    Status = "signaled"     // by a signal, not ours
	StatusTimedOut    Status = "timed_out"    // Cmd.Timeout passed
	StatusOOMKilled   Status = "oom_killed"   // the kernel killed it for the memory limit
	StatusPIDsLimit   Status = "pids_limit"   // it failed at the process limit
	StatusDiskLimit   Status = "disk_limit"   // it failed at the disk limit
	StatusCancelled   Status = "cancelled"    // the caller's context ended
	StatusSandboxLost Status = "sandbox_lost" // the sandbox or its agent died under it
)

// Exit codes by convention of the shell and timeout(1).
const (
	ExitTimeout       = 124
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitSignalBase    = 128
)

// Result is what a program did.
type Result struct {
	Status   Status        `json:"status"`
	ExitCode int           `json:"exit_code"`        // 124 for a timeout, 128+n for a signal, 137 for other kills, -1 for a lost sandbox
	Signal   string        `json:"signal,omitempty"` // without SIG
	Duration time.Duration `json:"duration"`
	Stdout   Stream        `json:"stdout"`
	Stderr   Stream        `json:"stderr"`
	Usage    Usage         `json:"usage"`
	// Notices are limits that were hit, whether they decided the status or not, in sentences.
	Notices []string `json:"notices,omitempty"`
	// NetworkDenied says what the rules of the session's network refused meanwhile; the
	// sandbox itself leaves it empty.
	NetworkDenied []string `json:"network_denied,omitempty"`
	// Shared says that other programs ran in the sandbox meanwhile, so that a
	// verdict on memory or processes may be another one's doing.
	Shared bool `json:"shared,omitempty"`
}

// Stream describes what went through a stream.
type Stream struct {
	Bytes int64  `json:"bytes"`          // all that the program wrote
	Tail  []byte `json:"tail,omitempty"` // its last bytes, where Capture cut it
}

// Usage is the resources of the program and its waited-for children.
type Usage struct {
	User   time.Duration `json:"user"`
	System time.Duration `json:"system"`
	MaxRSS int64         `json:"max_rss_bytes"`
}
