package hosttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// FreePort returns a port of 127.0.0.1 that nobody listens on, outside of the range from which the
// kernel chooses ports for other listeners and connections.
func FreePort(t testing.TB) int {
	t.Helper()
	const least = 10_000
	first, last := 32_768, 0 // the kernel's range
	raw, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	_, _ = fmt.Sscan(string(raw), &first, &last)
	if first <= least {
		first = 1 << 16 // its range is all ports
	}
	for range 1000 {
		port := least + rand.IntN(first-least)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("there is no free port")
	return 0
}
