//go:build !linux

package podman

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// Containers need Linux. These stubs only let clients compile on other systems, where nothing makes a Backend.
const (
	limitQueues  = -1
	limitSignals = -1
)

func endsWithThread(*syscall.SysProcAttr) {}

func joinNewKeyring() error { return unix.ENOSYS }

func shifts(context.Context, string) error { return unix.ENOSYS }
