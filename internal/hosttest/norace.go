//go:build !race

package hosttest

// Raced: the race detector is on.
const Raced = false
