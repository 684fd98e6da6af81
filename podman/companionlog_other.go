//go:build !linux

package podman

import "errors"

// logKeeper needs inotify, and a local Podman.
type logKeeper struct{}

func newLogKeeper(string) (*logKeeper, error) { return nil, errors.ErrUnsupported }

func (*logKeeper) run(<-chan struct{}) {}
