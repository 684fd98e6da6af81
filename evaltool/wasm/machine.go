package wasm

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/sys"
)

// machine is a compiled module with its host functions.
type machine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

// newMachine compiles a rewritten module, or loads it from the cache.
func newMachine(ctx context.Context, module []byte, cache wazero.CompilationCache) (*machine, error) {
	config := wazero.NewRuntimeConfig().WithDebugInfoEnabled(false)
	if cache != nil {
		config = config.WithCompilationCache(cache)
	}
	m := &machine{runtime: wazero.NewRuntimeWithConfig(ctx, config)}
	err := m.host(ctx)
	if err == nil {
		m.compiled, err = m.runtime.CompileModule(ctx, module)
	}
	if err != nil {
		_ = m.runtime.Close(ctx)
		return nil, err
	}
	return m, nil
}

func (m *machine) close() { _ = m.runtime.Close(context.Background()) }

// job is one run of an instance.
type job struct {
	memory         *region
	from           *image // nil for a first start by _start
	stack          uint64 // stack pointer of from
	function       uint32 // vectorcall slot of the driver
	object         uint32 // address of the driver
	args           []string
	env            map[string]string
	files          *memoryFiles
	stdout, stderr io.Writer
	fuel           int64
	timeout        time.Duration
	real           bool // real time and random numbers
}

// ran is the result of a run. memory is valid until the job's region is unmapped.
type ran struct {
	stopped  error // one of the errors above, or nil
	exited   bool  // proc_exit was called
	exitCode uint32
	crashed  error // the module trapped
	used     int64 // fuel
	memory   []byte
	stack    uint64
}

// run starts an instance and calls it. An error means that the host failed.
func (m *machine) run(ctx context.Context, j *job) (*ran, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.timeout, errLate)
	defer cancel()
	meter := &meter{left: j.fuel, clock: newClock(j.real), files: j.files}
	inner := context.WithValue(context.WithoutCancel(ctx), meterKey{}, meter)
	meter.ctx = ctx
	mod, err := m.runtime.InstantiateModule(experimental.WithMemoryAllocator(inner, j.memory), m.compiled, j.config(meter))
	if err != nil {
		return nil, fmt.Errorf("instantiate: %w", err)
	}
	defer mod.Close(inner)
	if err := meter.attach(mod); err != nil {
		return nil, err
	}
	j.files.attach(meter)
	defer j.files.attach(nil)
	call, err := j.prepare(mod)
	if err != nil {
		return nil, err
	}
	out := &ran{}
	out.ended(call(inner))
	out.used = j.fuel - meter.remaining()
	out.stack = mod.ExportedGlobal(exportStack).Get()
	out.memory, _ = mod.Memory().Read(0, mod.Memory().Size())
	return out, nil
}

func (j *job) config(m *meter) wazero.ModuleConfig {
	c := m.clock
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithArgs(j.args...).
		WithStdout(&stopping{j.stdout, m}).WithStderr(&stopping{j.stderr, m}).
		WithWalltime(c.walltime, sys.ClockResolution(time.Millisecond)).
		WithNanotime(c.nanotime, sys.ClockResolution(time.Millisecond)).
		WithFSConfig(wazero.NewFSConfig().(sysfs.FSConfig).WithSysFSMount(j.files, "/"))
	var random io.Reader = rand.NewChaCha8([32]byte{})
	if j.real {
		random = crand.Reader
	}
	config = config.WithRandSource(&inPieces{random, m})
	for name, value := range j.env {
		config = config.WithEnv(name, value)
	}
	return config
}

// ended classifies the result of the call.
func (r *ran) ended(err error) {
	var exit *sys.ExitError
	var stop stopError
	switch {
	case err == nil:
	case errors.Is(err, errHost):
		r.crashed = errHost
	case errors.As(err, &stop):
		r.stopped = stop.reason
	case errors.As(err, &exit):
		r.exited, r.exitCode = true, exit.ExitCode()
	default:
		r.crashed = err
	}
}

// exit is proc_exit. The module stays open, so that its memory can be read.
func exit(_ context.Context, _ api.Module, stack []uint64) {
	panic(sys.NewExitError(uint32(stack[0])))
}

// prepare returns the function that runs the program.
func (j *job) prepare(mod api.Module) (func(context.Context) error, error) {
	if j.from == nil {
		return start(mod.ExportedFunction("_start"))
	}
	stack, ok := mod.ExportedGlobal(exportStack).(api.MutableGlobal)
	if !ok {
		return nil, errModule
	}
	stack.Set(j.stack)
	pages := uint32(j.from.size / pageSize)
	if has := mod.Memory().Size() / pageSize; pages > has {
		if _, ok := mod.Memory().Grow(pages - has); !ok {
			return nil, errModule
		}
	}
	return j.driver(mod)
}

func start(fn api.Function) (func(context.Context) error, error) {
	if fn == nil {
		return nil, errModule
	}
	return func(ctx context.Context) error {
		_, err := fn.Call(ctx)
		return err
	}, nil
}
