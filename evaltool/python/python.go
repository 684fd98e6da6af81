// Package python is the evaltool.Engine for containers. It runs a driver, a Python program, in the sandbox: a new one
// for each call, or one that is kept between calls. The sandboxes container and restricted are two namespaces of the
// same driver.
//
// The container is the security boundary, not this package. The driver shares its process with the evaluated code, so
// its answers are treated as hostile input: bounded, checked against their schema, and never trusted with more than the
// code could do anyway.
package python

import (
	"context"
	"sync"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/internal/keeper"
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/sandbox"
)

// program is the driver.
var program = sync.OnceValue(func() *sandbox.PythonProgram {
	return &sandbox.PythonProgram{Name: "evaluate", Source: driver.Source()}
})

// Options configure an Engine.
type Options struct {
	// Runner returns the runner of programs, and creates it on first use. Its errors wrap those of package sandbox or
	// are *tool.Error. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
}

// Engine evaluates Python in the session's sandbox. Its methods may be called concurrently; evaluations in one kept
// interpreter wait for each other.
type Engine struct {
	*keeper.Keeper // of the kept interpreters

	runner func(ctx context.Context) (sandbox.Runner, error)
}

var (
	_ evaltool.Engine   = (*Engine)(nil)
	_ evaltool.Resetter = (*Engine)(nil)
)

// New returns an Engine. It starts nothing.
func New(opts *Options) *Engine {
	return &Engine{runner: opts.Runner, Keeper: keeper.New(&keeper.Options{
		Start: func(ctx context.Context, req evaltool.Request) (keeper.Interpreter, error) {
			p, err := keeper.Start(ctx, opts.Runner, sandbox.Cmd{Python: program()}, maxMessage, req)
			if err != nil {
				return nil, noPython(err)
			}
			return &interpreter{p}, nil
		},
		Lost: "the kept interpreter had ended since the last call: its names are lost and a new one was started",
	})}
}

// Evaluate implements evaltool.Engine.
func (e *Engine) Evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, error) {
	if req.Kept {
		return e.Keeper.Evaluate(ctx, req)
	}
	return e.fresh(ctx, req)
}

// Guidance implements evaltool.Engine.
func (e *Engine) Guidance() string {
	return `- sandbox "container": all of the image's Python, in the session's container, without network.
- sandbox "restricted": Python without import, classes, with, async, yield and attribute tricks. It has functions, lambda, comprehensions, f-strings, try, match, math, statistics, read_text, write_text, list_files and the builtins that work on plain values; type takes one value; exceptions have names in raise and except only. What it lacks ends the code with a RestrictedError.
- display holds what a notebook would show (HTML, SVG, PNG, JPEG, PDF, LaTeX, Markdown, JavaScript, JSON).`
}
