//go:build !race

package budget

const slowdown = 1
