//go:build !linux

package podman

import "log/slog"

// hostDevices is for machines on which runtimes work.
type hostDevices struct{}

func newHostDevices(*slog.Logger) *hostDevices { return &hostDevices{} }

func (*hostDevices) during(do func() error) error { return do() }
