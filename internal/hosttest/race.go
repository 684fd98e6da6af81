//go:build race

package hosttest

// Raced reports whether the race detector is on. It takes extra memory and time, so a test that
// bounds either expects less then; the run without it checks the bound.
const Raced = true
