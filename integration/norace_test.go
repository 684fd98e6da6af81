//go:build !race

package integration

// raced: the race detector is on.
const raced = false
