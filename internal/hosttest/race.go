//go:build race

package hosttest

// Raced: the race detector is on. It takes memory and time of its own, so a test
// that bounds either asks less of a run with it; the run without it holds the bound.
const Raced = true
