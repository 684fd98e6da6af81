package sandbox

import (
	"context"
	"time"
)

// Detacher is a [Runner] that has programs that outlive who started them, see [Lifetime.Detaches]. Such a program belongs
// to the handle that started it or attached to it last. When that is gone it waits a
// minute for the next one to attach, and is killed after that. Its output waits in
// 256 KiB for each stream: with a reader the program waits for room, without one the
// oldest bytes go. The methods may be called at the same time.
type Detacher interface {
	// Detached lists them by age, the eldest first. One that has ended is listed until
	// its exit was read; of those the last 64 are kept.
	Detached(ctx context.Context) ([]DetachedProcess, error)
	// Attach takes over one that no handle has. Of cmd only the streams count. It wraps
	// ErrNotFound where there is none of that ID, and ErrExists where another handle has it.
	Attach(ctx context.Context, id uint64, cmd Cmd) (Process, error)
}

// DetachedProcess is one program as [Detacher.Detached] lists it.
type DetachedProcess struct {
	ID      uint64
	PID     int           // in the sandbox, 0 until it has begun
	Label   string        // as [Cmd] had it; nobody vouches for it
	Argv    []string      // its first 4 KiB
	Age     time.Duration // since it was started
	Held    bool          // a handle has it
	Ended   bool
	Input   bool     // its stdin is open
	Read    [2]int64 // bytes of stdout and stderr that former handles have read
	Dropped [2]int64 // of those that went unread
}

// SoleOwner is a [Runner] of which other handles may be left that nobody has any more.
type SoleOwner interface {
	// EndOthers ends all other handles on the sandbox, as the loss of their processes
	// does. Only who owns the sandbox alone may call it.
	EndOthers(ctx context.Context) error
}

// Identified is a [Process] that [Detacher] can find again.
type Identified interface {
	// ID is the process's in its sandbox, 0 of one that is not detached.
	ID() uint64
}
