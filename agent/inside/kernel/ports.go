package kernel

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// mostSockets is how much is read of a list of sockets, in bytes. Linux lists those
// that listen first.
const mostSockets = 1 << 20

// Listens reports whether somebody listens on a TCP port in this process's network,
// where a connection to 127.0.0.1 or ::1 gets to.
func Listens(port uint16) bool {
	return listensIn("/proc/self/net/tcp", port) || listensIn("/proc/self/net/tcp6", port)
}

func listensIn(path string, port uint16) bool {
	file, err := os.Open(path)
	if err != nil { // no IPv6, say
		return false
	}
	defer file.Close()
	return listensAt(io.LimitReader(file, mostSockets), port)
}

// listensAt reads the kernel's table: its number, ADDRESS:PORT in hexadecimal, the
// peer's, and the state, of which 0A listens.
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

// ofLoopback are the local addresses of who is reached at 127.0.0.1 or ::1, as words
// of the machine, which has its least byte first.
var ofLoopback = map[string]bool{
	"00000000":                         true,
	"0100007F":                         true,
	"00000000000000000000000000000000": true,
	"00000000000000000000000001000000": true,
	"0000000000000000FFFF00000100007F": true,
}
