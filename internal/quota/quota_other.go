//go:build !linux

package quota

import (
	"context"
	"os"
)

// Mounting has the options of a mount of an image.
type Mounting struct{ Durable, New bool }

// MountImage returns [ErrUnable], like the other functions that set limits: they need Linux.
func MountImage(_, _ string, _ Mounting) error { return ErrUnable }

// IsMounted returns false.
func IsMounted(string) bool { return false }

// TryUnmount does nothing.
func TryUnmount(string) error { return nil }

// Unmount does nothing.
func Unmount(context.Context, string) error { return nil }

// SetProject returns [ErrUnable].
func SetProject(Limit, ...*os.File) (uint32, error) { return 0, ErrUnable }

// Assign returns [ErrUnable].
func Assign(*os.File, uint32) error { return ErrUnable }

// FreeProject returns [ErrUnable].
func FreeProject(*os.File, uint32) error { return ErrUnable }

// ProjectUsage returns [ErrUnable].
func ProjectUsage(*os.File, uint32) (taken, limit Limit, err error) {
	return Limit{}, Limit{}, ErrUnable
}

// HasProjects returns false.
func HasProjects(*os.Root) bool { return false }

func inMemory(int64) (*os.File, error) { return nil, ErrUnable }

func copyData(_, _ *os.File) error { return ErrUnable }

// SetLimit returns [ErrUnable].
func SetLimit(uint32, Limit, ...*os.File) error { return ErrUnable }

// GrowImage returns [ErrUnable].
func GrowImage(_, _ string, _ int64) (inodes int64, err error) { return 0, ErrUnable }
