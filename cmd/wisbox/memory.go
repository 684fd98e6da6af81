package main

import (
	"os"
	"runtime/debug"
)

// maxHeap is what a process that serves sessions lets its heap and stacks grow to, in
// bytes, before it collects garbage more often: with the program's own pages it is to
// stay below 128 MiB. Left to itself Go waits until the heap is twice what is in use.
const maxHeap = 88 << 20

// firstGC is how much garbage a command makes before it collects any: Go's own 4 MB are
// reached while a command starts, which costs a tenth of a short one's processor time.
const firstGC = 16 << 20

// spareGC sets that, where GOGC doesn't say another. What serves calls boundMemory.
func spareGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(100 * firstGC / (4 << 20))
	}
}

// boundMemory sets the bound of a process that serves, where GOMEMLIMIT doesn't say
// another, and takes spareGC back.
func boundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(100)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(maxHeap)
	}
}
