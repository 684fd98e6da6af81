//go:build !linux

package main

import (
	"context"
	"io"
	"os"
)

// outputTo returns an output. Only Linux can move bytes from a socket into a pipe.
func outputTo(file *os.File, end context.CancelCauseFunc) io.Writer { return output{file, end} }
