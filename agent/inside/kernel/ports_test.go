package kernel

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWhoListensIsReadOutOfTheKernelsTables, for both families and without sockets that are only connected.
func TestWhoListensIsReadOutOfTheKernelsTables(t *testing.T) {
	const four = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 5 1 0 100 0 0 10 0
   1: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 6 1 0 100 0 0 10 0
   2: 0200007F:1F42 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7 1 0 100 0 0 10 0
   3: 0100007F:1F43 0100007F:1F40 01 00000000:00000000 00:00000000 00000000  1000        0 8 1 0 100 0 0 10 0
   4: nonsense
   5: 0100007F:zz 00000000:0000 0A
`
	const six = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1F44 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 9 1 0 100 0 0 10 0
   1: 00000000000000000000000000000000:1F45 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 9 1 0 100 0 0 10 0
`
	for port, want := range map[uint16]bool{8000: true, 8001: true, 8002: false, 8003: false, 8004: true, 8005: true, 0: false} {
		got := listensAt(strings.NewReader(four), port) || listensAt(strings.NewReader(six), port)
		assert.Equal(t, want, got, port)
	}
}
