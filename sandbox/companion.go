package sandbox

import (
	"context"
	"io"
	"time"
)

// Companion is a container beside a sandbox, with an image of its own, as a database.
// It has the sandbox's network, which is closed, and nothing of its files.
type Companion struct {
	// Name is ^[a-z][a-z0-9-]{0,30}$, one of each in a sandbox.
	Name string `json:"name"`
	// Image to run, with its own entrypoint, user and variables; the backend never pulls it.
	Image string `json:"image"`
	// Env is added to the image's variables. Programs that ask the companion may read
	// them: they are no place for a secret.
	Env map[string]string `json:"env,omitempty"`
	// Port of 127.0.0.1 at which it listens when it is ready; default the lowest TCP port
	// that the image exposes.
	Port uint16 `json:"port,omitempty"`
	// Memory in bytes without swap, default 512 MiB. What it writes counts to it.
	Memory int64 `json:"memory_bytes,omitempty"`
	// Dirs of the image that it may write, absolute, beside the image's volumes, /tmp,
	// /run and /var/run: each begins with what the image has there, lies in memory, and is
	// gone with the container.
	Dirs []string `json:"dirs,omitempty"`
}

// What each Companion may use.
const (
	CompanionMemory = 512 << 20 // bytes, the default
	CompanionCPUs   = 1
	CompanionPIDs   = 256
	// CompanionReady is how long one may take until it listens.
	CompanionReady = time.Minute
	// CompanionOutput is how much of its output is kept, in bytes.
	CompanionOutput = 1 << 20
)

// CompanionState is what a Companion is now.
type CompanionState struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// State is running, exited and so on as the backend has it, or "none yet" where there is
	// no sandbox.
	State    string `json:"state"`
	ExitCode int    `json:"exit_code,omitempty"` // of one that has ended
}

// Accompanied is a [Sandbox] that can have companions. They end with it, however it ends.
type Accompanied interface {
	// Accompany starts the companions that don't run, all of them where the sandbox was
	// started again, and returns when each listens. Where one doesn't, the error has the end of its
	// output, and what this call started is gone. It wraps [ErrUnsupported] where the
	// sandbox's network can't be joined.
	Accompany(ctx context.Context, all []Companion) error
	// Companions gives what there is.
	Companions(ctx context.Context) ([]CompanionState, error)
	// CompanionOutput writes the newest lines of what a companion printed; 0 is all that is
	// kept, negative none. An unknown one wraps [ErrNotFound].
	CompanionOutput(ctx context.Context, name string, lines int, stdout, stderr io.Writer) error
}
