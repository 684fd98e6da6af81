// Command wisbox opens sandboxed workspaces for agents and runs their tools.
// Each command has its own file: an options struct, newXCmd, runX.
package main

import (
	"context"
	"errors"
	"os"
	"syscall"
)

func main() {
	spareGC()
	ctx, end, signals := notifySignals(context.Background())
	a := &app{in: os.Stdin, out: outputTo(os.Stdout, end), err: output{os.Stderr, end}, signals: signals}
	code := a.main(ctx, os.Args[1:])
	end(context.Canceled)
	os.Exit(code)
}

// output is stdout or stderr. If its reader goes away, as in `| head -1`, the command cleans up and
// ends as if by SIGPIPE. If a write fails for another reason, the command fails.
type output struct {
	file *os.File
	end  context.CancelCauseFunc
}

func (o output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	switch {
	case errors.Is(err, syscall.EPIPE):
		o.end(signalled{syscall.SIGPIPE})
	case err != nil:
		o.end(lostOutput{err})
	}
	return n, err
}

// Fd lets callers find out whether this is a terminal.
func (o output) Fd() uintptr { return o.file.Fd() }

// lostOutput is the cause of a context that ended because a write to stdout or stderr failed.
type lostOutput struct{ error }
