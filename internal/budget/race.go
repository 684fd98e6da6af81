//go:build race

package budget

// slowdown is what the race detector makes of a second's work, about: what holds
// without it must not run out of time under it.
const slowdown = 10
