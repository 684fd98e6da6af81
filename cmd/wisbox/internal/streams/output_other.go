//go:build !linux

package streams

import (
	"context"
	"io"
	"os"
)

// NewOutput returns an output. Only Linux can move bytes from a socket into a pipe.
func NewOutput(file *os.File, end context.CancelCauseFunc) io.Writer { return Output{file, end} }
