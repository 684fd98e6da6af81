package wasm

import (
	"context"
	"errors"
	"io"

	"github.com/tetratelabs/wazero/api"
)

// slice is the fuel that an instance gets at a time: between two grants nothing checks the clock. It is about 10 ms of
// work.
const slice = 1_000_000

// Reasons for stopping a run.
var (
	errFuel   = errors.New("the fuel is used up")
	errLate   = errors.New("the time is over")
	errCancel = errors.New("the caller cancelled the call")
	errOutput = errors.New("the output is too long")
)

// stopError is a panic that passes from a host function through the program to run.
type stopError struct{ reason error }

func (e stopError) Error() string { return e.reason.Error() }

func (e stopError) Unwrap() error { return e.reason }

// stopping lets a writer stop the program: the writer's error is the reason.
type stopping struct {
	io.Writer
	meter *meter
}

func (w *stopping) Write(p []byte) (int, error) {
	w.meter.spend(int64(len(p)) / perUnit)
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
	files *memoryFiles
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

// grant adds the next slice to the program's fuel.
func (m *meter) grant(has int64) {
	next := min(slice, m.left)
	m.left -= next
	m.fuel.Set(uint64(has + next))
}

// spend takes fuel for the work of a host function, before it is done, and stops the
// program if there is not enough or its time is over.
func (m *meter) spend(units int64) {
	m.check()
	has := int64(m.fuel.Get()) - units
	if has < 0 {
		more := min(max(slice, -has), m.left)
		m.left -= more
		has += more
	}
	m.fuel.Set(uint64(has))
	if has < 0 {
		panic(stopError{errFuel})
	}
}

func (m *meter) remaining() int64 { return m.left + int64(m.fuel.Get()) }

// check stops the program if its time is over or the call was cancelled.
func (m *meter) check() {
	if m.ctx.Err() == nil {
		return
	}
	if errors.Is(context.Cause(m.ctx), errLate) || errors.Is(m.ctx.Err(), context.DeadlineExceeded) {
		panic(stopError{errLate})
	}
	panic(stopError{errCancel})
}

// refuel implements sched_yield: the program calls it, and so does the counting code when the fuel is below zero.
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
