// Package sandbox is the contract between wisbox and a backend that isolates programs. A
// [Backend] creates a [Sandbox] from a [Spec], and a Sandbox runs programs as a [Runner].
//
// Package podman is the backend of the product. Package sandboxtest has the conformance suite
// that every backend passes, and a Host backend without isolation for unit tests.
//
// A failed program is a [Result], never an error. An error means that wisbox or the
// backend failed, and wraps one of [ErrUnavailable], [ErrLost], [ErrNotFound],
// [ErrExists], [ErrInvalid] or [ErrUnsupported], or a context's error.
package sandbox

import (
	"context"
	"errors"
	"time"
)

// Errors that a backend wraps. Their texts, and those of the errors that wrap them, are fit for
// an agent: they advise what to do next and have no host path.
var (
	ErrUnavailable = errors.New("sandbox unavailable")    // no service, image or room: nothing was created
	ErrLost        = errors.New("sandbox lost")           // it existed and is gone: create it again
	ErrNotFound    = errors.New("sandbox not found")      // no sandbox has that ID
	ErrExists      = errors.New("sandbox exists")         // Create: a sandbox has that ID, open it instead
	ErrInvalid     = errors.New("invalid sandbox spec")   // the Spec or Cmd breaks a rule
	ErrUnsupported = errors.New("unsupported by sandbox") // the image or backend lacks it
)

// WorkspaceDir is the path of the workspace for programs.
const WorkspaceDir = "/workspace"

// UserID and GroupID are the IDs of programs inside the sandbox.
const (
	UserID  = 1000
	GroupID = 1000
)

// Limits bound one sandbox. A zero field means the default.
type Limits struct {
	CPUs     float64 `json:"cpus,omitempty"`                                       // processors, default 1
	Memory   int64   `json:"memory_bytes,omitempty" setting:"memory" unit:"bytes"` // bytes without swap, default 1 GiB
	PIDs     int64   `json:"pids,omitempty"`                                       // processes and threads, default 256
	Tmp      int64   `json:"tmp_bytes,omitempty" setting:"tmp" unit:"bytes"`       // bytes of /tmp, which count toward Memory; default 256 MiB, at most half of Memory
	Shm      int64   `json:"shm_bytes,omitempty" setting:"shm_size" unit:"bytes"`  // bytes of /dev/shm, which count toward Memory; default a quarter of Memory, at most half
	Disk     int64   `json:"disk_bytes,omitempty" setting:"disk" unit:"bytes"`     // bytes of the workspace, default 2 GiB
	Inodes   int64   `json:"inodes,omitempty"`                                     // entries of the workspace, default 200,000
	NoFile   int64   `json:"nofile,omitempty"`                                     // open descriptors of a process, default 16,384, at most the host's hard limit; less if all processes together could take more than a quarter of the machine's fs.file-max
	FileSize int64   `json:"file_bytes,omitempty" unit:"bytes"`                    // bytes of one file, default Disk
}

// WithDefaults returns the limits with the defaults of docs/tools.md in zero fields.
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
	def(&l.Tmp, min(256<<20, l.Memory/2, max(l.Memory/4*3-l.Shm, 0)))
	def(&l.Shm, l.Memory/4)
	def(&l.Disk, 2<<30)
	def(&l.Inodes, 200_000)
	def(&l.NoFile, 16_384)
	def(&l.FileSize, l.Disk)
	return l
}

// Home returns the bytes of [Home]: as many as Tmp has, but files in memory may take at most seven eighths of Memory.
func (l Limits) Home() int64 {
	return min(l.Tmp, l.Memory/8*7-l.Tmp-l.Shm)
}

// InMemory returns the bytes that a container's files in memory may take: /tmp, [Home] and /dev/shm.
func (l Limits) InMemory() int64 { return l.Tmp + l.Home() + l.Shm }

// Isolation is the degree to which programs are separated from the host's kernel.
type Isolation string

const (
	// IsolationDefault shares the kernel, with namespaces, a seccomp profile and no
	// capabilities.
	IsolationDefault Isolation = "default"
	// IsolationGVisor puts gVisor's kernel between programs and the host's kernel.
	IsolationGVisor Isolation = "gvisor"
)

// Spec is the input from which a backend creates a sandbox. There is never a network, the root
// is always read-only, and programs never have a capability: none of this is optional.
type Spec struct {
	// ID names the sandbox. It matches ^[a-z0-9][a-z0-9-]{0,62}$ and is unique in a state root.
	ID string
	// Image is the image to run. The backend never pulls it.
	Image string
	// Workspace is the host directory that becomes WorkspaceDir, absolute.
	Workspace string
	// Own is a host directory, absolute, for files that the backend makes for this sandbox
	// alone; its owner removes it after the sandbox. With it, the sandbox's host name is ID.
	Own    string
	Limits Limits
	// Env is added to the fixed variables for every program (KEY -> value).
	Env map[string]string
	// ExpandEnv expands the values of Env by [ExpandEnv].
	ExpandEnv bool
	// Strict refuses to create a sandbox with a limit that isn't enforced.
	Strict bool
	// Isolation is the level; "" means IsolationDefault. A backend without the level returns an
	// error that wraps ErrUnavailable and says what to install. It never creates a weaker
	// sandbox.
	Isolation Isolation
	// Owner is the owner of the workspace's files on the host, unless it is [Backend.Owner]: an
	// owner from [Ranger.OwnRange], which also means user IDs for this sandbox alone.
	Owner Owner
	// LowPorts allows listeners in the sandbox, see [Networker], on ports below 1024.
	LowPorts bool
	// UserHome mounts the workspace at [UserHome] as well, which is the HOME of programs then,
	// and names their user "user" in /etc/passwd instead of the image's name.
	UserHome bool
	// Wake is called when Open or a reconnection finds the sandbox paused, with a function that
	// resumes it. Open returns its error. It may wait until the client that paused the sandbox
	// resumes it. Default: resume the sandbox.
	Wake func(ctx context.Context, goOn func() error) error `json:"-"`
	// Seccomp is a host file: the profile of system calls instead of the backend's
	// own. System calls that it allows beyond that are reported as a gap.
	Seccomp string
}

// Backend creates and finds sandboxes. Its methods may be called from many goroutines at once.
// It retries operations whose errors are known to be temporary.
type Backend interface {
	// Create creates a sandbox and returns once a program can run in it. After an error, or if
	// ctx ends, nothing of it is left. If several callers create the same ID, one succeeds and
	// the others get an error that wraps ErrExists.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Open attaches to a running sandbox that another process created from the same spec. The
	// error wraps ErrNotFound if there is none. Open removes a stopped or broken one first.
	Open(ctx context.Context, spec Spec) (Sandbox, error)
	// List returns the sandboxes of this state root, running or not.
	List(ctx context.Context) ([]Info, error)
	// Remove removes a sandbox by ID and returns when nothing of it is left. An unknown ID is
	// not an error.
	Remove(ctx context.Context, id string) error
	// Owner reports which host user must own the workspace's files so that
	// programs and the host side can both change them. With an error it still returns the most
	// likely one, so that the host side can work on files without a service.
	Owner(ctx context.Context) (Owner, error)
	// Close frees the resources of the Backend. Sandboxes stay.
	Close() error
}

// Ranger is a [Backend] that can give a sandbox user IDs of its own.
type Ranger interface {
	// OwnRange returns the owner of a new sandbox's workspace, whose range of IDs overlaps none
	// of taken. The error wraps ErrUnsupported if programs run as the caller.
	OwnRange(ctx context.Context, taken []Owner) (Owner, error)
	// CheapRanges reports whether its own range costs a sandbox nothing, so that each should
	// have one.
	CheapRanges(ctx context.Context) bool
}

// Owner is a user and group of the host that own files.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// Sandbox is one running sandbox. Its methods may be called from many
// goroutines at once: many programs run at the same time.
type Sandbox interface {
	Runner
	// Info describes the sandbox, with the limits that hold, as read back from the host.
	Info(ctx context.Context) (Info, error)
	// Detach closes this handle. Its programs end, except for those of a [Detacher], and the
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
	// Gaps are sentences about the guarantees of wisbox that don't hold here.
	Gaps []string `json:"gaps,omitempty"`
}

// LimitState is a limit as requested, and whether the host enforces it.
type LimitState struct {
	Name  string `json:"name"` // cpus, memory, pids, tmp, nofile, fsize, disk, inodes; of a running sandbox also watchers
	Asked string `json:"asked"`
	// Holds is the value that holds, if it is lower than the requested one.
	Holds    string `json:"holds,omitempty"`
	Enforced bool   `json:"enforced"`
	By       string `json:"by"` // the mechanism that enforces it, or the reason why none does
}

// Runner runs programs. Many calls may be made at once.
type Runner interface {
	// Run runs one program to its end. When it returns, every process that the
	// program started is gone, however it ended. When ctx ends the program is
	// killed and the Result has StatusCancelled. If the sandbox dies
	// meanwhile, the Result has StatusSandboxLost; that is not an error.
	Run(ctx context.Context, cmd Cmd) (Result, error)
	// Start begins a program and returns at once. The program runs until it ends,
	// or until Kill, Detach or Close; ctx bounds only the start.
	Start(ctx context.Context, cmd Cmd) (Process, error)
}

// Process is a started program.
type Process interface {
	// Wait returns when the program and all its descendants are gone. It may be called many
	// times; ctx ends only the wait.
	Wait(ctx context.Context) (Result, error)
	// Signal sends a signal, by its name without SIG, to the program's process group. An unknown
	// name wraps ErrInvalid; an ended program is not an error.
	Signal(name string) error
	// Kill kills the program and its descendants.
	Kill() error
	// Resize changes the terminal's size. The error wraps ErrUnsupported if there is none.
	Resize(size WinSize) error
}
