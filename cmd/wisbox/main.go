// Command wisbox opens sandboxed workspaces for agents and runs their tools.
// Each command has its own file: an options struct, newXCmd, runX.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	spareGC()
	ctx, end := notifySignals(context.Background())
	a := &app{in: os.Stdin, out: outputTo(os.Stdout, end), err: output{os.Stderr, end}}
	code := a.main(ctx, os.Args[1:])
	end(context.Canceled)
	os.Exit(code)
}

// signalled is the cause of a context that ended by a signal.
type signalled struct{ sig syscall.Signal }

func (s signalled) Error() string { return "ended by signal " + s.sig.String() }

// notifySignals returns a context that ends at the first SIGINT, SIGTERM or SIGHUP, with the signal
// as its cause. A second signal ends the process. It ignores SIGPIPE, which sockets raise too: see
// [output].
func notifySignals(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		select {
		case sig := <-ch:
			signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			cancel(signalled{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
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

// Stat and Fd let callers find out whether this is a terminal.
func (o output) Stat() (os.FileInfo, error) { return o.file.Stat() }
func (o output) Fd() uintptr                { return o.file.Fd() }

// lostOutput is the cause of a context that ended because a write to stdout or stderr failed.
type lostOutput struct{ error }
