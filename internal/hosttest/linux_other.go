//go:build !linux

package hosttest

import "testing"

// Tmpfs, Lease and UnmountBelow need Linux: a test skips there, for CI runs it.

func Tmpfs(t testing.TB, _, _ string) {
	t.Helper()
	t.Skip("only Linux has tmpfs")
}

func Lease(t testing.TB, _ string, _ int) (release func()) {
	t.Helper()
	t.Skip("only Linux has leases")
	return nil
}

func UnmountBelow(string) {}
