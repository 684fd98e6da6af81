// Command wisbox opens sandboxed workspaces for agents and runs their tools.
// Each command stands in a file of its own: an options struct, newXCmd, runX.
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
	a := &app{in: os.Stdin, out: output{os.Stdout, end}, err: output{os.Stderr, end}}
	code := a.main(ctx, os.Args[1:])
	end(context.Canceled)
	os.Exit(code)
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ sig syscall.Signal }

func (s signalled) Error() string { return "ended by signal " + s.sig.String() }

// notifySignals ends the context at the first SIGINT, SIGTERM or SIGHUP, with
// the signal as its cause; a second one ends the process. SIGPIPE, which sockets
// raise too, does nothing: see [output].
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

// output is stdout or stderr. Where nobody reads it any more, as of `| head -1`, the
// command ends as by SIGPIPE, but not before it has tidied up; where it can't be
// written for another reason, the command fails.
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

// Stat and Fd are for those who ask whether this is a terminal.
func (o output) Stat() (os.FileInfo, error) { return o.file.Stat() }
func (o output) Fd() uintptr                { return o.file.Fd() }

// lostOutput is the cause of a context that ended because what was to be said
// could not be.
type lostOutput struct{ error }
