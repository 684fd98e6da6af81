package main

import (
	"math"
	"os"
	"runtime/debug"
	"sync"
)

// maxHeap is the size of heap and stacks, in bytes, above which a process that serves sessions
// collects garbage more often. Together with the program's own pages it stays below 128 MiB. By
// default Go waits until the heap has doubled.
const maxHeap = 72 << 20

// firstGC is the garbage that a command creates before the first collection. Go's default of 4 MB
// is reached while a command starts, which costs a short command a tenth of its processor time.
const firstGC = 16 << 20

// spareGC sets firstGC unless GOGC is set. Commands that serve call boundMemory instead.
func spareGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(100 * firstGC / (4 << 20))
	}
}

// boundMemory sets the bound for a process that serves, unless GOMEMLIMIT is set, and undoes
// spareGC.
func boundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(100)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(maxHeap)
	}
}

// liftMemory lifts the bound of boundMemory, if it is in force, until the function that it returns is called. Under the
// bound, compiling Python in WebAssembly takes four times as long. It may be called again meanwhile.
func liftMemory() (restore func()) {
	lifted.Lock()
	defer lifted.Unlock()
	if lifted.n == 0 && debug.SetMemoryLimit(-1) != maxHeap {
		return func() {}
	}
	lifted.n++
	debug.SetMemoryLimit(math.MaxInt64)
	return func() {
		lifted.Lock()
		defer lifted.Unlock()
		if lifted.n--; lifted.n == 0 {
			debug.SetMemoryLimit(maxHeap)
		}
	}
}

// lifted counts who has lifted the bound.
var lifted struct {
	sync.Mutex
	n int
}
