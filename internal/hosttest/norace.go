//go:build !race

package hosttest

// Raced reports whether the race detector is on.
const Raced = false
