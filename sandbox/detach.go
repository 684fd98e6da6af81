package sandbox

import (
	"context"
	"time"
)

// Detacher is a [Runner] whose programs can outlive the client that started them, see
// [Lifetime.Detaches]. Such a program belongs to the handle that started it or attached to it
// last. When that handle is gone, the program is killed unless another one attaches within a
// minute. Its output is buffered in 256 KiB for each stream. If there is a reader, the program
// waits for room; otherwise the oldest bytes are dropped. The methods may be called at the same
// time.
type Detacher interface {
	// Detached lists these programs, the oldest first. One that has ended is listed until its
	// exit was read; of these, the last 64 are kept.
	Detached(ctx context.Context) ([]DetachedProcess, error)
	// Attach takes over a program that no handle has. Only the streams of cmd are used. The
	// error wraps ErrNotFound for an unknown ID, and ErrExists if another handle has it.
	Attach(ctx context.Context, id uint64, cmd Cmd) (Process, error)
}

// DetachedProcess is a program in the list of [Detacher.Detached].
type DetachedProcess struct {
	ID      uint64
	PID     int           // in the sandbox, 0 until it has begun
	Label   string        // of its [Cmd]; not verified
	Argv    []string      // its first 4 KiB
	Age     time.Duration // since it was started
	Held    bool          // a handle has it
	Ended   bool
	Input   bool     // its stdin is open
	Read    [2]int64 // bytes of stdout and stderr that earlier handles have read
	Dropped [2]int64 // bytes of stdout and stderr that were dropped unread
}

// SoleOwner is a [Runner] of which abandoned handles may be left.
type SoleOwner interface {
	// EndOthers ends all other handles on the sandbox, just as the end of their processes
	// would. Only the sole owner of the sandbox may call it.
	EndOthers(ctx context.Context) error
}

// Identified is a [Process] that a [Detacher] can find again.
type Identified interface {
	// ID returns the process's ID in its sandbox, or 0 if it is not detached.
	ID() uint64
}
