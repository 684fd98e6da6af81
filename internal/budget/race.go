//go:build race

package budget

// slowdown is how much slower the race detector makes work, roughly: budgets that suffice without
// it must suffice with it.
const slowdown = 10
