package sandbox

import (
	"context"
	"time"
)

// Gauger is a [Sandbox] that reports what it takes now.
type Gauger interface {
	// Gauge is what everything in the sandbox takes together. Where that isn't counted the
	// error wraps [ErrUnsupported].
	Gauge(ctx context.Context) (Gauge, error)
}

// Gauge is what a sandbox takes at one moment.
type Gauge struct {
	CPU       time.Duration `json:"cpu_ns"`       // processor time so far
	Memory    int64         `json:"memory_bytes"` // with the files in /tmp, and what the kernel can give back
	Processes int64         `json:"processes"`    // and threads
}
