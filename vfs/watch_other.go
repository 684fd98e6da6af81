//go:build !linux

package vfs

import (
	"context"

	"github.com/wisbox/wisbox/tool"
)

// Watch is unsupported: it needs inotify.
func (f *FS) Watch(context.Context, string) (<-chan Change, error) {
	return nil, tool.Errorf(tool.Unsupported, "watching files needs Linux")
}

type watches struct{}

func (*watches) close() {}
