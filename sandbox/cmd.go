package sandbox

import (
	"io"
	"time"
)

// Cmd is a program to run. Exactly one of Argv and Python must be set.
type Cmd struct {
	// Argv is the program, which is looked up in the fixed PATH, and its arguments. There
	// is no shell.
	Argv []string
	// Python is source for a Python interpreter instead, see [PythonProgram].
	Python *PythonProgram
	// Dir is relative to the workspace; "" means the workspace itself. An absolute path
	// is a directory of the sandbox. If a backend can enter only the workspace, a path
	// outside of it wraps ErrInvalid.
	Dir string
	// Env is added to the sandbox's variables ("KEY=value"); the last value of a name wins.
	Env []string
	// Stdin is copied to the program until it ends; nil means /dev/null.
	Stdin io.Reader
	// Stdout and Stderr receive the streams, each from one goroutine; nil discards a
	// stream at the source, but counts its bytes. A Write that blocks slows down that
	// stream and the program, but never another program.
	Stdout, Stderr io.Writer
	// Capture cuts the streams at the source; nil passes everything on.
	Capture *Capture
	// Control is a private channel: the program reads In from descriptor 3 and writes
	// Out to descriptor 4. With Python, main gets the two as files.
	Control *Control
	// Timeout is the time after which everything is killed and the Result has
	// StatusTimedOut; 0 means none. A program without Python and Control first gets TERM,
	// and two seconds to clean up. The sandbox itself enforces both: a stopped or dead
	// caller doesn't extend them.
	Timeout time.Duration
	// Lifetime decides which programs may stay when the call has ended; "" means
	// [LifetimeCall].
	Lifetime Lifetime
	// Label is kept with a program that [Lifetime.Detaches], for clients that find the
	// program by [Detacher]. It has at most [MaxLabel] bytes without NUL. Other programs
	// have none.
	Label string
	// Signals are sent to the program's process group as they come, by their names without SIG;
	// nil sends none. Only Run reads them: a started program has [Process.Signal].
	Signals <-chan string
	// TTY gives the program a terminal as its three streams (Stderr stays empty).
	TTY *WinSize
}

// Lifetime is how long the programs that a Cmd starts may live. Every program ends with its
// sandbox at the latest.
type Lifetime string

const (
	// LifetimeCall: none of its programs runs after the call has returned.
	LifetimeCall Lifetime = ""
	// LifetimeSelf: the program's descendants may stay when it has ended.
	LifetimeSelf Lifetime = "self"
	// LifetimeLeft: like [LifetimeDetached], and the program's descendants may stay when it
	// has ended.
	LifetimeLeft Lifetime = "left"
	// LifetimeDetached: the program outlives its client, see [Detacher]. It can't have a
	// Control or be a Python program, and Capture has no effect on it.
	LifetimeDetached Lifetime = "detached"
)

// Detaches reports whether a program outlives the client that started it.
func (l Lifetime) Detaches() bool { return l == LifetimeDetached || l == LifetimeLeft }

// MaxLabel bounds [Cmd.Label], in bytes.
const MaxLabel = 8 << 10

// PythonProgram is trusted Python source of wisbox's own that runs as one
// program: Source is executed as a module, then its function main() is called.
//
// A backend may execute Source once, ahead of time and with more rights than a program has, in
// an interpreter that it forks for every call. So the module body may only import and define.
// Untrusted code reaches it only through Control. main runs with a program's rights, in its
// directory and environment.
type PythonProgram struct {
	Name   string // for messages, such as "evaluate"
	Source string
}

// Capture bounds the cost of a program's streams. The first Forward bytes of each stream go to
// the Cmd's writer. The sandbox reads and discards the rest at the pipe's speed, except for the
// last Tail bytes, which are in the Result.
type Capture struct {
	Forward int64
	Tail    int
}

// Control is a pair of private streams. A nil In is the end of file at once.
// Bytes that the program writes to Out come after all that it wrote before to its Stdout
// and Stderr: when Out's Write is called, theirs have returned.
type Control struct {
	In  io.Reader
	Out io.Writer
}

// WinSize is a terminal's size in characters.
type WinSize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Status describes how a program ended. Its values are a public contract (docs/tools.md).
type Status string

const (
	StatusExited      Status = "exited"       // by itself, with ExitCode
	StatusSignaled    Status = "signaled"     // by a signal that wisbox didn't send
	StatusTimedOut    Status = "timed_out"    // Cmd.Timeout passed
	StatusOOMKilled   Status = "oom_killed"   // the kernel killed it for the memory limit
	StatusPIDsLimit   Status = "pids_limit"   // it failed at the process limit
	StatusDiskLimit   Status = "disk_limit"   // it failed at the disk limit
	StatusCancelled   Status = "cancelled"    // the caller's context ended
	StatusSandboxLost Status = "sandbox_lost" // the sandbox or its agent died
)

// Exit codes by the conventions of the shell and timeout(1).
const (
	ExitTimeout       = 124
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitSignalBase    = 128
)

// Result is the outcome of a program.
type Result struct {
	Status   Status        `json:"status"`
	ExitCode int           `json:"exit_code"`        // 124 for a timeout, 128+n for a signal, 137 for other kills, -1 for a lost sandbox
	Signal   string        `json:"signal,omitempty"` // without SIG
	Duration time.Duration `json:"duration"`
	Stdout   Stream        `json:"stdout"`
	Stderr   Stream        `json:"stderr"`
	Usage    Usage         `json:"usage"`
	// Notices are sentences about limits that were hit, whether or not they decided the status.
	Notices []string `json:"notices,omitempty"`
	// NetworkDenied lists connections that the session's network rules refused meanwhile.
	// The sandbox itself leaves it empty.
	NetworkDenied []string `json:"network_denied,omitempty"`
	// Shared reports whether other programs ran in the sandbox meanwhile, any of which may
	// have caused a verdict on memory or processes.
	Shared bool `json:"shared,omitempty"`
}

// NoProgram is the beginning of the notice for a program that the session's image doesn't have, though wisbox can make
// one that has it.
const NoProgram = "this session's image has no "

// NoNetwork is the beginning of the notice for a program that failed to reach another host because
// its session has no network.
const NoNetwork = "this session has no network"

// Stream describes the data of a stream.
type Stream struct {
	Bytes int64  `json:"bytes"`          // all that the program wrote
	Tail  []byte `json:"tail,omitempty"` // its last bytes, if Capture cut it
}

// Usage is the resource usage of the program and the children that were waited for.
type Usage struct {
	User   time.Duration `json:"user"`
	System time.Duration `json:"system"`
	MaxRSS int64         `json:"max_rss_bytes"`
}
