package wasm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Defaults of the options, which are also the maximum for one call.
const (
	DefaultFuel      = 400_000_000
	DefaultMemory    = 256 << 20
	DefaultMaxOutput = 4 << 20
)

// TimeoutFor returns the default of [Options.Timeout] for an amount of fuel: ten times as long as it lasts on the machine of
// the calibration, and at least 30 s. So fuel decides when code ends, and time only if the machine is very slow.
func TimeoutFor(fuel int64) time.Duration {
	const unitsPerSecond, least, most = 8_000_000, 30, 24 * 60 * 60
	return time.Duration(min(max(fuel/unitsPerSecond, least), most)) * time.Second
}

// Options configure an Engine. The zero value works.
type Options struct {
	// Module is the path of a python.wasm; "" means the path in the environment variable WISBOX_WASM_PYTHON or
	// RLM_WASM_PYTHON_PATH, or else the module that [Install] put into CacheDir.
	Module string
	// CacheDir holds compiled modules and started interpreters; "" means wisbox/wasm in the user's cache directory.
	// Every user that can write to it controls the code that runs.
	CacheDir string
	// Prepared returns files of [PreparedFiles], which are copied into CacheDir if it has none. They are the code that
	// runs, so nobody else may choose them. Files of other versions or processors, or damaged ones, are no error: the
	// engine then makes its own. If the result is an io.Closer, it is closed. Default none.
	Prepared func() (fs.FS, error)
	// Fuel and Memory (bytes) bound one evaluation. 0 means the values of the environment variables RLM_WASM_FUEL and
	// RLM_WASM_MEMORY_MB, or else 400,000,000 and 256 MiB. Memory is at most 4 GiB.
	Fuel, Memory int64
	// Timeout bounds [Engine.Eval]. 0 means the value of the environment variable WISBOX_WASM_TIMEOUT, or else
	// [TimeoutFor] the fuel. Evaluate has it in its request.
	Timeout time.Duration
	// MaxOutput is the maximum size of Eval's output in bytes, default 4 MiB.
	MaxOutput int
	// MaxConcurrent is the maximum number of simultaneous evaluations, default one per processor; others wait.
	MaxConcurrent int
	// Loading is called before the module is loaded, and what it returns afterwards. Compiling a module for the first
	// time takes 230 MB of memory, so a program with a lower limit for Go's heap may lift it meanwhile. Default none.
	Loading func() (loaded func())
	// Real gives the code the real time and real random numbers. Results are not
	// deterministic then, and Version is "".
	Real bool
}

// Engine holds Python in WebAssembly for a whole process: [Engine.Session] returns the evaluator of one session,
// [Engine.Eval] evaluates for package rlm. Its methods may be called concurrently. It loads the module on first use.
type Engine struct {
	opts  Options
	slots chan struct{}

	mu     sync.Mutex // held while loading
	source *source
	ready  *interpreter
}

// New returns an Engine. It loads nothing: if the module is not installed, the first call returns unsupported. Limits
// that are out of range, in opts or in the environment, are invalid.
func New(opts *Options) (*Engine, error) {
	e := &Engine{}
	if opts != nil {
		e.opts = *opts
	}
	if err := e.opts.bounds(); err != nil {
		return nil, err
	}
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

// Version identifies the engine and the module: evaluations of the same code and inputs by the same version give the
// same result. It is "" if there is no module or results are not deterministic.
func (e *Engine) Version() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opts.Real || e.identify() != nil {
		return ""
	}
	return e.source.key
}

// Find looks for the module without loading it. Its errors are those of a call.
func (e *Engine) Find() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.identify()
}

// identify finds the module and computes its key. The caller holds mu.
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

// load returns the interpreter, which is valid until Close.
func (e *Engine) load(ctx context.Context) (*interpreter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready != nil {
		return e.ready, nil
	}
	if err := e.identify(); err != nil {
		return nil, err
	}
	if e.opts.Loading != nil {
		defer e.opts.Loading()()
	}
	ready, err := loadInterpreter(context.WithoutCancel(ctx), e.source, &e.opts)
	switch {
	case errors.Is(err, errModule):
		return nil, tool.Errorf(tool.Unsupported, "the Python module for WebAssembly can't be used: it is not the CPython 3.12 for WASI that wisbox knows; `wisbox lab wasm install` fetches that one").Because(err)
	case err != nil:
		return nil, tool.Errorf(tool.Unavailable, "python in WebAssembly could not be started; the log says more").Because(err)
	}
	e.source.module = nil
	ready.real = e.opts.Real
	e.ready = ready
	return ready, nil
}

// enter takes one of the slots for evaluations.
func (e *Engine) enter(ctx context.Context) (leave func(), err error) {
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots }, nil
	case <-ctx.Done():
		return nil, tool.AsError(ctx.Err())
	}
}

// Close unloads the module. No evaluation may be running. A later one loads the module again; kept interpreters must be
// reset before.
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
		return nil, fmt.Errorf("%w: it is not a file of at most %d bytes", errModule, maxMemory)
	}
	return os.ReadFile(path)
}
