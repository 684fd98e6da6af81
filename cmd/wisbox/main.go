// Command wisbox opens sandboxed workspaces for agents and runs their tools.
// Each command has its own file: an options struct, newXCmd, runX.
package main

import (
	"context"
	"os"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

func main() {
	engine.Arrive()
	spareGC()
	ctx, end, signals := streams.Notify(context.Background())
	a := &app{in: os.Stdin, out: streams.NewOutput(os.Stdout, end), err: streams.Output{File: os.Stderr, End: end}, signals: signals}
	code := a.main(ctx, os.Args[1:])
	end(context.Canceled)
	os.Exit(code)
}
