package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheBoundOfMemoryIsLifted(t *testing.T) {
	now := func() int64 { return debug.SetMemoryLimit(-1) }
	defer debug.SetMemoryLimit(now())
	debug.SetMemoryLimit(maxHeap)
	first, second := liftMemory(), liftMemory()
	assert.EqualValues(t, math.MaxInt64, now())
	first()
	assert.EqualValues(t, math.MaxInt64, now(), "the other one goes on")
	second()
	assert.EqualValues(t, maxHeap, now())

	debug.SetMemoryLimit(1 << 30) // by GOMEMLIMIT
	liftMemory()()
	assert.EqualValues(t, 1<<30, now())
}
