package far_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/tool"
)

// silent returns a Client of a machine that never says hello, and a channel that gets an item for
// each connection.
func silent(t *testing.T) (*far.Client, chan struct{}) {
	t.Helper()
	connected := make(chan struct{}, 2)
	return far.NewClient(far.Func{Name: "box", Dial: func(context.Context) (io.ReadWriteCloser, error) {
		near, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		connected <- struct{}{}
		return near, nil
	}}, hello), connected
}

// TestACallerThatLeavesDoesNotWaitForAnothersConnection, and Close ends the connection.
func TestACallerThatLeavesDoesNotWaitForAnothersConnection(t *testing.T) {
	c, connected := silent(t)
	first := make(chan error, 1)
	go func() {
		_, err := c.Dial(context.Background())
		first <- err
	}()
	<-connected
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Dial(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Close())
	assert.Equal(t, tool.Closed, tool.KindOf(<-first))
}

// TestADeadlineOfTheCallerIsItsOwn: the error doesn't blame the other machine.
func TestADeadlineOfTheCallerIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := silent(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Dial(ctx)
		assert.Equal(t, tool.Timeout, tool.KindOf(err))
		_, err = c.Dial(t.Context())
		require.ErrorContains(t, err, "box doesn't answer")
		require.NoError(t, c.Close())
	})
}
