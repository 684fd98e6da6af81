package wasm

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// slice is how much fuel an instance gets at a time: between two grants nobody
// looks at the clock. It is about 10 ms of work.
const slice = 1_000_000

// How a run was stopped.
var (
	errFuel   = errors.New("the fuel is used up")
	errLate   = errors.New("the time is over")
	errCancel = errors.New("the caller cancelled the call")
	errOutput = errors.New("the output is too long")
)

// machine is a compiled module and what it needs of the host.
type machine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

// newMachine compiles a rewritten module, or takes it from the cache.
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

// host makes WASI, with the functions that must know of the run.
func (m *machine) host(ctx context.Context) error {
	b := m.runtime.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	i32 := api.ValueTypeI32
	result := []api.ValueType{i32}
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(refuel), nil, result).Export(hookName)
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(poll), []api.ValueType{i32, i32, i32, i32}, result).Export("poll_oneoff")
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(exit), []api.ValueType{i32}, nil).Export("proc_exit")
	_, err := b.Instantiate(ctx)
	return err
}

// job is one run of an instance.
type job struct {
	memory         *region
	from           *image // nil: a first start by _start
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

// ran is what a run did. memory is valid until the job's region is unmapped.
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
	meter := &meter{left: j.fuel, clock: newClock(j.real)}
	inner := context.WithValue(context.WithoutCancel(ctx), meterKey{}, meter)
	meter.ctx = ctx
	mod, err := m.runtime.InstantiateModule(experimental.WithMemoryAllocator(inner, j.memory), m.compiled, j.config(meter.clock))
	if err != nil {
		return nil, fmt.Errorf("instantiate: %w", err)
	}
	defer mod.Close(inner)
	if err := meter.attach(mod); err != nil {
		return nil, err
	}
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

func (j *job) config(c *clock) wazero.ModuleConfig {
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithArgs(j.args...).
		WithStdout(&stopping{j.stdout}).WithStderr(&stopping{j.stderr}).
		WithWalltime(c.walltime, sys.ClockResolution(time.Millisecond)).
		WithNanotime(c.nanotime, sys.ClockResolution(time.Millisecond)).
		WithFSConfig(wazero.NewFSConfig().(sysfs.FSConfig).WithSysFSMount(j.files, "/"))
	if j.real {
		config = config.WithRandSource(crand.Reader)
	} else {
		config = config.WithRandSource(rand.NewChaCha8([32]byte{}))
	}
	for name, value := range j.env {
		config = config.WithEnv(name, value)
	}
	return config
}

// ended sorts out how the call came back.
func (r *ran) ended(err error) {
	var exit *sys.ExitError
	var stop stopError
	switch {
	case err == nil:
	case errors.As(err, &stop):
		r.stopped = stop.reason
	case errors.As(err, &exit):
		r.exited, r.exitCode = true, exit.ExitCode()
	default:
		r.crashed = err
	}
}

// stopError travels from a host function, as a panic, through the program to run.
type stopError struct{ reason error }

func (e stopError) Error() string { return e.reason.Error() }

// stopping lets a writer that has enough stop the program: its error is the
// reason.
type stopping struct{ io.Writer }

func (w *stopping) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, errOutput) {
		panic(stopError{errOutput})
	}
	return n, err
}

// meter counts the fuel of one run and watches its end.
type meter struct {
	ctx   context.Context
	clock *clock
	fuel  api.MutableGlobal
	left  int64 // not yet granted
}

type meterKey struct{}

func meterOf(ctx context.Context) *meter { return ctx.Value(meterKey{}).(*meter) }

func (m *meter) attach(mod api.Module) error {
	fuel, ok := mod.ExportedGlobal(exportFuel).(api.MutableGlobal)
	if !ok {
		return errModule
	}
	m.fuel = fuel
	m.grant(0)
	return nil
}

// grant adds the next slice to what the program has.
func (m *meter) grant(has int64) {
	next := min(slice, m.left)
	m.left -= next
	m.fuel.Set(uint64(has + next))
}

func (m *meter) remaining() int64 { return m.left + int64(m.fuel.Get()) }

// check stops the program when its time is over or its caller gone.
func (m *meter) check() {
	if m.ctx.Err() == nil {
		return
	}
	if errors.Is(context.Cause(m.ctx), errLate) || errors.Is(m.ctx.Err(), context.DeadlineExceeded) {
		panic(stopError{errLate})
	}
	panic(stopError{errCancel})
}

// refuel is sched_yield: the program calls it, and the counting code does when
// the fuel is below zero.
func refuel(ctx context.Context, _ api.Module, stack []uint64) {
	m := meterOf(ctx)
	stack[0] = 0
	m.check()
	has := int64(m.fuel.Get())
	if has >= 0 {
		return
	}
	if m.left == 0 {
		panic(stopError{errFuel})
	}
	m.grant(has)
}

// exit is proc_exit. The module stays open, so that its memory can be read.
func exit(_ context.Context, _ api.Module, stack []uint64) {
	panic(sys.NewExitError(uint32(stack[0])))
}

// prepare gives the function that runs the program.
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

// clock is the time of one run. Unless it is the real one it begins at a fixed
// instant and moves by a millisecond a look, and by what the program sleeps.
type clock struct {
	real bool
	now  atomic.Int64 // nanoseconds since the epoch
}

// epoch is 2024-01-01T00:00:00Z.
const epoch = 1_704_067_200_000_000_000

func newClock(real bool) *clock {
	c := &clock{real: real}
	c.now.Store(epoch)
	return c
}

func (c *clock) look() int64 {
	if c.real {
		return time.Now().UnixNano()
	}
	return c.now.Add(int64(time.Millisecond))
}

func (c *clock) walltime() (int64, int32) {
	now := c.look()
	return now / int64(time.Second), int32(now % int64(time.Second))
}

func (c *clock) nanotime() int64 { return c.look() }

// slept moves the clock after a sleep.
func (c *clock) slept(d time.Duration) { c.now.Add(int64(d)) }

var little = binary.LittleEndian
