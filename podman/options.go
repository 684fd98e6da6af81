package podman

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/wisbox/wisbox/internal/rundir"
)

// Options configure a Backend; nil and zero fields work.
type Options struct {
	// Root is the ID of the state root whose sandboxes these are, the label
	// wisbox.root. List and Remove touch no others. Default "default".
	Root string
	// RuntimeDir holds the private service's socket and configuration, and small files that containers mount. It is created, and only this user may have access (0700). Default:
	// /run/wisbox for root; for others wisbox in $XDG_RUNTIME_DIR or /run/user/UID, else /tmp/wisbox-UID.
	RuntimeDir string
	// StateDir gets the agent's program, which containers mount, and podman.log, the private service's log: a directory that only this user can access, on a file
	// system that is not mounted noexec. It is created. Default: wisbox in the user's cache directory, else RuntimeDir.
	StateDir string
	// BaseURL is the only service to use (unix://, ssh://, tcp://). Default
	// $PODMAN_BASE_URL, then $CONTAINER_HOST, then see the package comment.
	BaseURL string
	// Identity is the key file for ssh. Default $PODMAN_IDENTITY, $CONTAINER_SSHKEY.
	Identity string
	// Connection names one of `podman system connection list`. Default
	// $PODMAN_CONNECTION, $CONTAINER_CONNECTION. BaseURL wins.
	Connection string
	// Podman is the program that runs the private service. Default "podman" on PATH.
	Podman string
	// Runtime is the OCI runtime of the private service, a name or an absolute
	// path ("runc", "/usr/local/bin/runsc"). Default: the first of crun and runc
	// that works on this host.
	Runtime string
	// Runsc is gVisor's runtime for sandboxes of [sandbox.IsolationGVisor], a name
	// on PATH or an absolute path. Default $WISBOX_RUNSC, then "runsc".
	Runsc string
	// MaxCreates is the maximum number of containers created at once; further callers wait. Default twice the number of
	// processors, at least 4.
	MaxCreates int
	// Logger gets the causes that errors omit. Default slog.Default().
	Logger *slog.Logger

	// For tests: how long the private service stays after its last connection (default 60 s), the system's socket, and
	// whether sandboxes without a seccomp filter are accepted, as a fake service has.
	idle         time.Duration
	systemSocket string
	unfiltered   bool
}

// withDefaults returns a copy of o with its defaults, except those that depend on the Podman found.
func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	def := func(v *string, candidates ...string) {
		for _, c := range candidates {
			if *v == "" {
				*v = c
			}
		}
	}
	def(&out.Root, "default")
	def(&out.RuntimeDir, rundir.Default())
	if cache, err := os.UserCacheDir(); err == nil {
		def(&out.StateDir, filepath.Join(cache, "wisbox"))
	}
	def(&out.StateDir, out.RuntimeDir)
	if out.BaseURL == "" && out.Connection == "" {
		def(&out.BaseURL, os.Getenv("PODMAN_BASE_URL"), os.Getenv("CONTAINER_HOST"))
		def(&out.Connection, os.Getenv("PODMAN_CONNECTION"), os.Getenv("CONTAINER_CONNECTION"))
	}
	def(&out.Identity, os.Getenv("PODMAN_IDENTITY"), os.Getenv("CONTAINER_SSHKEY"))
	def(&out.Podman, "podman")
	def(&out.systemSocket, "/run/podman/podman.sock")
	def(&out.Runsc, os.Getenv("WISBOX_RUNSC"), runscName)
	if out.MaxCreates <= 0 {
		out.MaxCreates = max(4, 2*runtime.NumCPU())
	}
	if out.idle == 0 {
		out.idle = time.Minute
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	return out
}
