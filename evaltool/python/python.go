// Package python is the evaltool.Engine for containers: it runs a driver, a
// Python program of wisbox's own, through the sandbox, fresh for each call or
// kept alive between calls. The sandboxes container and restricted are two
// namespaces of the same driver.
//
// It is not a boundary: the container is. The driver shares its process with the
// evaluated code, so its answers are read as hostile input: bounded, checked
// against their schema, and never trusted with more than the code could do anyway.
package python

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/sandbox"
)

// MaxContexts is how many kept interpreters one Engine has at a time.
const MaxContexts = 8

// program is the driver.
var program = sync.OnceValue(func() *sandbox.PythonProgram {
	return &sandbox.PythonProgram{Name: "evaluate", Source: driver.Source()}
})

// Options configure an Engine.
type Options struct {
	// Runner gives what runs programs, and makes it on first use. Its errors wrap
	// those of package sandbox or are *tool.Error. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
}

// Engine evaluates Python in the session's sandbox. It may be used from many
// goroutines at once; evaluations in one kept interpreter wait for each other.
type Engine struct {
	runner func(ctx context.Context) (sandbox.Runner, error)

	mu   sync.Mutex
	kept map[slot]*keeper
}

var (
	_ evaltool.Engine   = (*Engine)(nil)
	_ evaltool.Resetter = (*Engine)(nil)
)

// New makes an Engine. It starts nothing.
func New(opts *Options) *Engine {
	return &Engine{runner: opts.Runner, kept: map[slot]*keeper{}}
}

// Evaluate implements evaltool.Engine.
func (e *Engine) Evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, error) {
	if !req.Kept {
		return e.fresh(ctx, req)
	}
	for {
		k, err := e.keeper(slot{req.Sandbox, req.Context})
		if err != nil {
			return evaltool.Response{}, err
		}
		if resp, done, err := k.evaluate(ctx, req); done {
			return resp, err
		}
	}
}

// Guidance implements evaltool.Engine.
func (e *Engine) Guidance() string {
	return `- sandbox "container": all of the image's Python, in the session's container, without network.
- sandbox "restricted": a small safe interpreter (asteval) without import, classes, lambda and attribute tricks, with math, statistics, read_text, write_text, list_files, print, int, float, bool, str, list, dict, tuple, set, sorted, min, max, sum, abs, round, range, len, enumerate, zip.
- display holds what a notebook would show of the value (HTML, SVG, PNG, LaTeX, Markdown, JSON) and open matplotlib figures.`
}

// secret is a word that the code can't have known before its call.
func secret() string {
	var word [16]byte
	_, _ = rand.Read(word[:]) // never fails: crypto/rand
	return hex.EncodeToString(word[:])
}
