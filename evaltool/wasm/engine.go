package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Defaults of the options, which are also the most that one call may ask for.
const (
	DefaultFuel      = 400_000_000
	DefaultMemory    = 256 << 20
	DefaultTimeout   = 5 * time.Second
	DefaultMaxOutput = 4 << 20
)

// Options configure an Engine. The zero value works.
type Options struct {
	// Module is the path of a python.wasm; "" is the one that the environment
	// variable WISBOX_WASM_PYTHON or RLM_WASM_PYTHON_PATH names or, without them, the
	// one that [Install] put into CacheDir.
	Module string
	// CacheDir holds what is compiled and started once; "" is wisbox/wasm in the
	// user's cache directory. Whoever can write to it decides what code runs.
	CacheDir string
	// Fuel and Memory (bytes) bound one evaluation. 0 is what the environment
	// variables RLM_WASM_FUEL and RLM_WASM_MEMORY_MB say, or without them 400,000,000
	// and 256 MiB. Memory is at most 4 GiB.
	Fuel, Memory int64
	// Timeout bounds [Engine.Eval], default 5 s; Evaluate has it in its request.
	Timeout time.Duration
	// MaxOutput bounds what Eval returns, in bytes, default 4 MiB.
	MaxOutput int
	// MaxConcurrent is how many evaluations run at once, default one a processor;
	// others wait.
	MaxConcurrent int
	// Real gives the code the real time and real random numbers. Results are not
	// deterministic then, and Version is "".
	Real bool
}

// Engine holds Python in WebAssembly for a whole process: [Engine.Session] gives
// the evaluator of one session, [Engine.Eval] evaluates for package rlm. It may be
// used from many goroutines at once. It loads the module on first use.
type Engine struct {
	opts  Options
	slots chan struct{}

	mu     sync.Mutex // held while loading
	source *source
	ready  *interpreter
}

// New makes an Engine. It loads nothing: a module that is not installed is found
// missing, as unsupported, by the first call. Limits that are out of range, in
// opts or in the environment, are invalid.
func New(opts *Options) (*Engine, error) {
	e := &Engine{}
	if opts != nil {
		e.opts = *opts
	}
	if err := e.opts.bounds(); err != nil {
		return nil, err
	}
	e.opts.Timeout = orDefault(e.opts.Timeout, DefaultTimeout)
	e.opts.MaxOutput = orDefault(e.opts.MaxOutput, DefaultMaxOutput)
	e.slots = make(chan struct{}, orDefault(e.opts.MaxConcurrent, runtime.GOMAXPROCS(0)))
	return e, nil
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Version names the engine and the module: evaluations of the same code over the
// same inputs by the same version give the same result. It is "" where there is
// no module or results are not deterministic.
func (e *Engine) Version() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opts.Real || e.identify() != nil {
		return ""
	}
	return e.source.key
}

// identify finds the module and computes its key. mu is held.
func (e *Engine) identify() error {
	if e.source != nil {
		return nil
	}
	if e.opts.CacheDir == "" {
		dir, err := DefaultCacheDir()
		if err != nil {
			return err
		}
		e.opts.CacheDir = dir
	}
	source, err := findSource(e.opts.Module, e.opts.CacheDir)
	if err != nil {
		return err
	}
	e.source = source
	return nil
}

// Warm loads the module now rather than on the first call.
func (e *Engine) Warm(ctx context.Context) error {
	_, err := e.load(ctx)
	return err
}

// load gives the interpreter, which lives until Close.
func (e *Engine) load(ctx context.Context) (*interpreter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready != nil {
		return e.ready, nil
	}
	if err := e.identify(); err != nil {
		return nil, err
	}
	ready, err := loadInterpreter(context.WithoutCancel(ctx), e.source, e.opts.CacheDir)
	switch {
	case errors.Is(err, errModule):
		return nil, tool.Errorf(tool.Unsupported, "the Python module for WebAssembly can't be used: it is not the CPython 3.12 for WASI that wisbox knows; `wisbox wasm install` fetches that one").Because(err)
	case err != nil:
		return nil, tool.Errorf(tool.Unavailable, "python in WebAssembly could not be started; the log says more").Because(err)
	}
	e.source.module = nil
	ready.real = e.opts.Real
	e.ready = ready
	return ready, nil
}

// enter takes one of the places for evaluations.
func (e *Engine) enter(ctx context.Context) (leave func(), err error) {
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots }, nil
	case <-ctx.Done():
		return nil, tool.AsError(ctx.Err())
	}
}

// Close lets go of the module. No evaluation may be on; a later one loads the
// module again, and kept interpreters must be reset before.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready != nil {
		e.ready.close()
	}
	e.ready, e.source = nil, nil
	return nil
}

// readModule reads a module of at most 256 MiB.
func readModule(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMemory {
		return nil, fmt.Errorf("%w: it is no file of at most %d bytes", errModule, maxMemory)
	}
	return os.ReadFile(path)
}
