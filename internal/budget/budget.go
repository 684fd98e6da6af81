// Package budget bounds the host's work on data from programs in a sandbox: output bytes, memory,
// steps and time. The bounds don't depend on the size of the input.
//
// A function that such a program can make expensive takes a *Budget as a parameter, charges it
// while it works, and returns the first error that it gets. One Budget covers one call, even if
// several packages work for it.
package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// The defaults of [Limits]. The whole process must stay below 128 MiB and answer within 10 s,
// whatever a program wrote.
const (
	DefaultOut    = 64 << 20
	DefaultMemory = 64 << 20
	DefaultSteps  = 50_000_000
	DefaultTime   = 10 * time.Second * slowdown // ten times as much under the race detector, for tests
)

// None is for limits that the caller enforces elsewhere.
const None = math.MaxInt64

// Limits are the limits of one Budget. A zero field takes its default.
type Limits struct {
	Out    int64         // bytes of output: answers, written files; default 64 MiB
	Memory int64         // bytes held at once; default 64 MiB
	Steps  int64         // iterations of the work's loop, such as entries, comparisons or tokens; default 50 million
	Time   time.Duration // default 10 s; None leaves only the context's deadline
}

func (l Limits) withDefaults() Limits {
	if l.Out == 0 {
		l.Out = DefaultOut
	}
	if l.Memory == 0 {
		l.Memory = DefaultMemory
	}
	if l.Steps == 0 {
		l.Steps = DefaultSteps
	}
	if l.Time == 0 {
		l.Time = patience.For(DefaultTime)
	}
	return l
}

// ErrExceeded is in the chain of every error of an exceeded Budget. A caller that can answer in
// part returns what it has and reports the cut.
var ErrExceeded = errors.New("budget exceeded")

// Budget is the remaining budget for one piece of work. Its methods may be called from many
// goroutines at once. Once a limit is exceeded, every method returns that error.
type Budget struct {
	ctx   context.Context
	stop  context.CancelFunc
	max   Limits
	whole *Budget // the Budget that this is a part of, or nil

	out, memory, steps atomic.Int64
	failed             atomic.Pointer[tool.Error]
}

// New returns a Budget that also ends with ctx. Call Close when the work is done.
func New(ctx context.Context, max Limits) *Budget {
	b := &Budget{max: max.withDefaults()}
	b.ctx, b.stop = ctx, func() {}
	if b.max.Time != None {
		cause := b.exceeded(tool.Timeout, "time", "takes longer than the maximum of "+b.max.Time.String())
		b.ctx, b.stop = context.WithTimeoutCause(ctx, b.max.Time, cause)
	}
	return b
}

// Part returns a Budget for one part of the work, so that the rest keeps its share. A zero field of
// max is [None]. A charge to a part is also a charge to the whole, and a part ends with its whole.
// Close the part when it is done: that releases the memory that it holds.
func (b *Budget) Part(max Limits) *Budget {
	for _, field := range []*int64{&max.Out, &max.Memory, &max.Steps, (*int64)(&max.Time)} {
		if *field == 0 {
			*field = None
		}
	}
	part := New(b.ctx, max)
	part.whole = b
	return part
}

// Close frees the Budget's timer. A nil Budget has nothing to free.
func (b *Budget) Close() {
	if b == nil {
		return
	}
	b.stop()
	if b.whole != nil {
		b.whole.Release(int(b.memory.Swap(0)))
	}
}

// Context returns a context that ends with the caller's context, or when the budget's time is over,
// with an error of this package as its cause.
func (b *Budget) Context() context.Context { return b.ctx }

// checkEvery is the number of steps between two checks of the context.
const checkEvery = 256

// Step charges n steps. It also checks the clock now and then.
func (b *Budget) Step(n int) error {
	if b.whole != nil {
		if err := b.whole.Step(n); err != nil {
			return err
		}
	}
	now := b.steps.Add(int64(n))
	if now > b.max.Steps {
		return b.fail(tool.Limit, "steps", fmt.Sprintf("takes more than the maximum of %d steps", b.max.Steps))
	}
	if n < checkEvery && now/checkEvery == (now-int64(n))/checkEvery {
		return b.err()
	}
	return b.Check()
}

// Out charges n bytes of output.
func (b *Budget) Out(n int) error {
	if b.whole != nil {
		if err := b.whole.Out(n); err != nil {
			return err
		}
	}
	if b.out.Add(int64(n)) > b.max.Out {
		return b.fail(tool.Limit, "output", "makes more than the maximum of "+size(b.max.Out))
	}
	return b.err()
}

// Hold charges n bytes of memory until Release.
func (b *Budget) Hold(n int) error {
	if b.whole != nil {
		if err := b.whole.Hold(n); err != nil {
			b.memory.Add(int64(n)) // counts as held all the same, until Close
			return err
		}
	}
	if b.memory.Add(int64(n)) > b.max.Memory {
		return b.fail(tool.Limit, "memory", "needs more than the maximum of "+size(b.max.Memory)+" of memory")
	}
	return b.err()
}

// Release releases n bytes that Hold charged.
func (b *Budget) Release(n int) {
	b.memory.Add(-int64(n))
	if b.whole != nil {
		b.whole.Release(n)
	}
}

// Check checks the clock and the caller's context.
func (b *Budget) Check() error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if b.whole != nil {
		if err := b.whole.err(); err != nil {
			return err
		}
	}
	return b.err()
}

func (b *Budget) err() error {
	if e := b.failed.Load(); e != nil {
		return e
	}
	return nil
}

func (b *Budget) fail(kind tool.Kind, what, text string) error {
	b.failed.CompareAndSwap(nil, b.exceeded(kind, what, text))
	return b.failed.Load()
}

func (b *Budget) exceeded(kind tool.Kind, what, text string) *tool.Error {
	return tool.Errorf(kind, "the work on this workspace %s; make it smaller, or ask for a part of it", text).
		Because(fmt.Errorf("%w: %s", ErrExceeded, what))
}

func size(n int64) string { return units.BytesSize(float64(n)) }
