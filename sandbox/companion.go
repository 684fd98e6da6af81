package sandbox

import (
	"context"
	"io"
	"time"
)

// Companion is a container beside a sandbox, with its own image, such as a database. It shares
// the sandbox's network, which is closed, and none of its files.
type Companion struct {
	// Name matches ^[a-z][a-z0-9-]{0,30}$ and is unique in a sandbox.
	Name string `json:"name"`
	// Image runs with its own entrypoint, user and variables. The backend never pulls it.
	Image string `json:"image"`
	// Env is added to the image's variables. Programs that connect to the companion may be
	// able to read them, so they must not hold secrets.
	Env map[string]string `json:"env,omitempty"`
	// Port is the port of 127.0.0.1 on which it listens once it is ready; default the
	// lowest TCP port that the image exposes.
	Port uint16 `json:"port,omitempty"`
	// Memory in bytes without swap, default 512 MiB. Files that it writes count toward it.
	Memory int64 `json:"memory_bytes,omitempty"`
	// Dirs are absolute paths of directories that it may write to, besides the image's
	// volumes, /tmp, /run and /var/run. Each begins with the image's content, is in memory,
	// and goes with the container.
	Dirs []string `json:"dirs,omitempty"`
}

// Limits of each Companion.
const (
	CompanionMemory = 512 << 20 // bytes, the default
	CompanionCPUs   = 1
	CompanionPIDs   = 256
	// CompanionReady is the time that one may take until it listens.
	CompanionReady = time.Minute
	// CompanionOutput and CompanionLines are the bytes and lines of its newest output that are kept.
	CompanionOutput = 1 << 20
	CompanionLines  = 16_384
)

// CompanionState is the current state of a Companion.
type CompanionState struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// State is the backend's word, such as running or exited, or "none yet" if there is no
	// sandbox.
	State    string `json:"state"`
	ExitCode int    `json:"exit_code,omitempty"` // once it has ended
	Gap      string `json:"gap,omitempty"`       // what this host doesn't enforce for it
}

// Accompanied is a [Sandbox] that can have companions. However it ends,
// they end with it.
type Accompanied interface {
	// Accompany starts the companions that don't run, which are all of them after a restart
	// of the sandbox, and returns when each listens. If one doesn't, the error has the end of
	// its output, and the companions that this call started are removed. The error wraps
	// [ErrUnsupported] if they can't join the sandbox's network.
	Accompany(ctx context.Context, all []Companion) error
	// Companions returns the sandbox's companions.
	Companions(ctx context.Context) ([]CompanionState, error)
	// CompanionOutput writes the last lines of a companion's output; 0 means all that is
	// kept, a negative number none. An unknown name wraps [ErrNotFound].
	CompanionOutput(ctx context.Context, name string, lines int, stdout, stderr io.Writer) error
}
