// Command wisbox opens sandboxed workspaces for agents and runs their tools.
// Each command stands in a file of its own: an options struct, newXCmd, runX.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := notifySignals(context.Background())
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	code := a.main(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ sig syscall.Signal }

func (s signalled) Error() string { return "ended by signal " + s.sig.String() }

// notifySignals ends the context at the first SIGINT, SIGTERM or SIGHUP, with
// the signal as its cause; a second one ends the process.
func notifySignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case sig := <-ch:
			signal.Reset()
			cancel(signalled{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(ch); cancel(context.Canceled) }
}
