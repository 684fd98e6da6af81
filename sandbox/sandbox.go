// Package sandbox is the contract between wisbox and whatever isolates
// programs: a [Backend] makes a [Sandbox] from a [Spec]; a Sandbox is a [Runner]
// of programs. Podman is the backend of the product (package podman);
// sandboxtest has one conformance suite that every backend passes and a Host
// backend, without isolation, for unit tests.
//
// What a program did is a [Result], never an error. An error means that wisbox
// or the backend failed, and wraps one of [ErrUnavailable], [ErrLost],
// [ErrNotFound], [ErrExists], [ErrInvalid] or [ErrUnsupported], or a context's error.
package sandbox

import (
	"context"
	"errors"
	"time"
)

// Errors that a backend wraps. Their text and what wraps them is fit for an
// agent to read: it says what to do next and holds no host path.
var (
	ErrUnavailable = errors.New("sandbox unavailable")    // no service, no image, no room: nothing was made
	ErrLost        = errors.New("sandbox lost")           // it was there and is gone: make it again
	ErrNotFound    = errors.New("sandbox not found")      // no sandbox of that ID
	ErrExists      = errors.New("sandbox exists")         // Create: there is a sandbox of that ID, open it
	ErrInvalid     = errors.New("invalid sandbox spec")   // the Spec or Cmd breaks a rule
	ErrUnsupported = errors.New("unsupported by sandbox") // the image or backend lacks it
)

// WorkspaceDir is where a program sees the workspace.
const WorkspaceDir = "/workspace"

// UserHome is where programs see the workspace too, with [Spec.UserHome].
const UserHome = "/home/user"

// UserID and GroupID are what programs run as, inside.
const (
	UserID  = 1000
	GroupID = 1000
)

// Limits bound one sandbox. A zero field takes the default named.
type Limits struct {
	CPUs     float64 `json:"cpus,omitempty"`         // processors, default 1
	Memory   int64   `json:"memory_bytes,omitempty"` // bytes without swap, default 1 GiB
	PIDs     int64   `json:"pids,omitempty"`         // processes and threads, default 256
	Tmp      int64   `json:"tmp_bytes,omitempty"`    // bytes of /tmp, which count to Memory; default 256 MiB, at most half of it
	Disk     int64   `json:"disk_bytes,omitempty"`   // bytes of the workspace, default 2 GiB
	Inodes   int64   `json:"inodes,omitempty"`       // entries of the workspace, default 200,000
	NoFile   int64   `json:"nofile,omitempty"`       // open descriptors of a process, default 16,384, at most the host's hard limit; less where all processes together would take over a quarter of the machine's fs.file-max
	FileSize int64   `json:"file_bytes,omitempty"`   // bytes of one file, default Disk
}

// WithDefaults fills the zero fields with the public contract's numbers (docs/tools.md).
func (l Limits) WithDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	if l.CPUs == 0 {
		l.CPUs = 1
	}
	def(&l.Memory, 1<<30)
	def(&l.PIDs, 256)
	def(&l.Tmp, min(256<<20, l.Memory/2))
	def(&l.Disk, 2<<30)
	def(&l.Inodes, 200_000)
	def(&l.NoFile, 16_384)
	def(&l.FileSize, l.Disk)
	return l
}

// Isolation is how far programs are kept from the host's kernel.
type Isolation string

const (
	// IsolationDefault shares the kernel: namespaces, a seccomp profile, no
	// capability.
	IsolationDefault Isolation = "default"
	// IsolationGVisor puts gVisor's kernel between programs and the host's.
	IsolationGVisor Isolation = "gvisor"
)

// Spec is all that a backend needs to make a sandbox. The network is always
// none, the root read-only, programs without any capability: none of that is an
// option.
type Spec struct {
	// ID names the sandbox: ^[a-z0-9][a-z0-9-]{0,62}$, unique in a state root.
	ID string
	// Image to run; the backend never pulls it.
	Image string
	// Workspace is the host directory that becomes WorkspaceDir, absolute.
	Workspace string
	Limits    Limits
	// Env is added to the fixed variables for every program (KEY -> value).
	Env map[string]string
	// Strict refuses to make a sandbox in which any limit isn't enforced.
	Strict bool
	// Isolation, "" for IsolationDefault. A backend that lacks the level wraps
	// ErrUnavailable and says what to install; it never makes a weaker sandbox.
	Isolation Isolation
	// Owner of the workspace's files on the host, where it isn't [Backend.Owner]: one
	// that [Ranger.OwnRange] gave, and with it user IDs of this sandbox alone.
	Owner Owner
	// LowPorts lets who listens in the sandbox, see [Networker], have ports below 1024.
	LowPorts bool
	// UserHome has programs find the workspace at [UserHome] too, which is their HOME
	// then, and themselves as "user" in /etc/passwd, whatever the image has there.
	UserHome bool
	// Wake is called with what lets a paused sandbox go on, when Open or a lost connection
	// finds one; its error is theirs. It may wait for whoever has paused it. Default: the
	// sandbox goes on.
	Wake func(ctx context.Context, goOn func() error) error `json:"-"`
	// Seccomp is a host file, the profile of system calls in place of the backend's
	// own. What it allows beyond that is told as a gap.
	Seccomp string
}

// Backend makes and finds sandboxes. Its methods may be called from many
// goroutines at once; it retries what is known to pass by itself.
type Backend interface {
	// Create makes a sandbox and returns once a program can run in it. On any
	// error, and when ctx ends, nothing of it is left. Of many that make one ID
	// one succeeds; to the others it wraps ErrExists.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Open attaches to a running sandbox that another process made from the
	// same spec, or wraps ErrNotFound. A stopped or broken one is removed first.
	Open(ctx context.Context, spec Spec) (Sandbox, error)
	// List gives the sandboxes of this state root, running or not.
	List(ctx context.Context) ([]Info, error)
	// Remove ends a sandbox by ID and returns when nothing of it is left.
	// One that is not there is no error.
	Remove(ctx context.Context, id string) error
	// Owner reports which host user must own the workspace's files so that
	// programs and the host side can both change them. With an error it still
	// gives the most likely one: files can be worked on without a service.
	Owner(ctx context.Context) (Owner, error)
	// Close frees what the Backend holds; sandboxes stay.
	Close() error
}

// Ranger is a [Backend] that can give a sandbox user IDs that no other has.
type Ranger interface {
	// OwnRange gives the owner of a new sandbox's workspace, whose range overlaps
	// none of taken. It wraps ErrUnsupported where programs run as the caller.
	OwnRange(ctx context.Context, taken []Owner) (Owner, error)
	// CheapRanges reports whether a range of its own costs a sandbox nothing: then each
	// should have one.
	CheapRanges(ctx context.Context) bool
}

// Owner is a host user and group, to whom files belong.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// Sandbox is one running sandbox. Its methods may be called from many
// goroutines at once: many programs run at the same time.
type Sandbox interface {
	Runner
	// Info reports what it is and which limits hold, read back from the host.
	Info(ctx context.Context) (Info, error)
	// Detach gives up this handle: its programs end, but for those of a [Detacher], the
	// sandbox stays for Open.
	Detach() error
	// Close ends every program, removes the sandbox and returns when nothing of
	// it is left. A second Close does nothing.
	Close(ctx context.Context) error
}

// Info describes a sandbox as the backend sees it.
type Info struct {
	ID      string            `json:"id"`
	Object  string            `json:"object"` // the backend's own name: a container ID
	State   string            `json:"state"`  // running, paused, exited, …
	Image   string            `json:"image"`
	Runtime string            `json:"runtime,omitempty"` // runc 1.1.5, …
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
	Limits  []LimitState      `json:"limits"`
	// Lacks are programs that tools of wisbox use and the image doesn't have: bash, sh,
	// python3, sbcl.
	Lacks []string `json:"lacks,omitempty"`
	// Gaps says in sentences which guarantee of wisbox doesn't hold here.
	Gaps []string `json:"gaps,omitempty"`
}

// LimitState is one limit: what was asked, and whether the host enforces it.
type LimitState struct {
	Name     string `json:"name"` // cpus, memory, pids, tmp, nofile, fsize, disk, inodes
	Asked    string `json:"asked"`
	Enforced bool   `json:"enforced"`
	By       string `json:"by"` // what enforces it, or why nothing does
}

// Runner runs programs. Many calls may be made at once.
type Runner interface {
	// Run runs one program to its end. When it returns, every process that the
	// program started is gone, however it ended. When ctx ends the program is
	// killed and the Result says StatusCancelled. A sandbox that dies under the
	// program is StatusSandboxLost in the Result, not an error.
	Run(ctx context.Context, cmd Cmd) (Result, error)
	// Start begins a program and returns at once. It lives until it ends, its
	// Kill, Detach or Close; ctx bounds only the start.
	Start(ctx context.Context, cmd Cmd) (Process, error)
}

// Process is a started program.
type Process interface {
	// Wait returns when the program and all that it started is gone. It may be
	// called many times; ctx ends only the wait.
	Wait(ctx context.Context) (Result, error)
	// Signal sends a signal to the program's process group: its name without
	// SIG. An unknown name wraps ErrInvalid; an ended program is no error.
	Signal(name string) error
	// Kill ends the program and all that it started.
	Kill() error
	// Resize changes the terminal's size; without a terminal it wraps ErrUnsupported.
	Resize(size WinSize) error
}
