package kernel

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// mostSockets is the maximum number of bytes to read from a list of sockets. Linux lists listening sockets first.
const mostSockets = 1 << 20

// Listens reports whether a program listens on a TCP port in this process's network, such that a connection to
// 127.0.0.1 or ::1 reaches it.
func Listens(port uint16) bool {
	return listensIn("/proc/self/net/tcp", port) || listensIn("/proc/self/net/tcp6", port)
}

func listensIn(path string, port uint16) bool {
	file, err := os.Open(path)
	if err != nil { // e.g. no IPv6
		return false
	}
	defer file.Close()
	return listensAt(io.LimitReader(file, mostSockets), port)
}

// listensAt reads the kernel's table. Its fields are a number, ADDRESS:PORT in hexadecimal, the peer's, and the state;
// 0A means listening.
func listensAt(table io.Reader, port uint16) bool {
	for lines := bufio.NewScanner(table); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || f[3] != "0A" {
			continue
		}
		addr, number, _ := strings.Cut(f[1], ":")
		if got, err := strconv.ParseUint(number, 16, 16); err == nil && uint16(got) == port && ofLoopback[addr] {
			return true
		}
	}
	return false
}

// ofLoopback holds the local addresses that 127.0.0.1 or ::1 reaches, as little-endian words.
var ofLoopback = map[string]bool{
	"00000000":                         true,
	"0100007F":                         true,
	"00000000000000000000000000000000": true,
	"00000000000000000000000001000000": true,
	"0000000000000000FFFF00000100007F": true,
}
