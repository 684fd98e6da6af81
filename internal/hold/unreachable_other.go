//go:build !linux

package hold

import (
	"context"
	"os"
)

// This system has no short path of an open directory, and no list of processes with their files.

func through(dir *os.File) string { return dir.Name() }

// EndUnreachable finds none on this system.
func (Root) EndUnreachable(context.Context, string, bool) []string { return nil }

func (Root) endUnreachable(context.Context, int, string) bool { return false }
