package sandbox

import (
	"context"
	"time"
)

// Gauger is a [Sandbox] that measures its current resource usage.
type Gauger interface {
	// Gauge returns the usage of everything in the sandbox. If the host doesn't count it, the
	// error wraps [ErrUnsupported].
	Gauge(ctx context.Context) (Gauge, error)
}

// Gauge is the resource usage of a sandbox at one moment.
type Gauge struct {
	CPU       time.Duration `json:"cpu_ns"`       // processor time so far
	Memory    int64         `json:"memory_bytes"` // including files in /tmp, and memory that the kernel can reclaim
	Processes int64         `json:"processes"`    // including threads
}
