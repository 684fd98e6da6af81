package hold_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hold"
)

// TestAServerThatStopsReading doesn't hold a client that gives up while its input is stuck halfway.
func TestAServerThatStopsReading(t *testing.T) {
	near, remote := net.Pipe()
	defer remote.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c := hold.NewConn(remote)
		_, _, _ = c.Receive()
		_ = c.Send(hold.FrameTaken, []byte(hold.Version))
		_, _, _ = c.Receive()               // Go
		_, _ = remote.Read(make([]byte, 1)) // the first byte of the input, and no more
		cancel()
	}()
	client := &hold.Client{Far: true, Dial: func(context.Context) (*hold.Conn, error) { return hold.NewConn(near), nil }}
	err := client.Do(ctx, hold.Request{Op: "x"}, hold.Streams{Stdin: strings.NewReader("input")}, &hold.Answer{})
	require.Error(t, err)
	assert.ErrorIs(t, err, context.Canceled)
}
