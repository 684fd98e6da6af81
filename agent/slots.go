package agent

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// slots bound the programs that begin at the same time, over all sandboxes of this process. A program takes about a
// millisecond to begin, on one processor. If 64 begin at once, the kernel shares the processors among 64 control groups in
// slices of some milliseconds, and the last ones wait for many rounds of them; in turn, in the order of their calls, all
// are done about as soon, and none waits much longer than the others: the 99th percentile of 64 callers was 3.7 and 2.4 times that
// of the host, and is 1.2 and 1.5 times (docs/benchmarks/programs.md).
var slots = semaphore.NewWeighted(int64(slotsPerProcessor * runtime.GOMAXPROCS(0)))

const (
	slotsPerProcessor = 4
	// slotTime is how long a program keeps its slot. One that runs longer leaves it to others.
	slotTime = 10 * time.Millisecond
)

// takeSlot waits for a slot. release may be called more than once.
func takeSlot(ctx context.Context) (release func(), err error) {
	if err := slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	end := time.AfterFunc(slotTime, func() { slots.Release(1) })
	return func() {
		if end.Stop() {
			slots.Release(1)
		}
	}, nil
}
