package far_test

import (
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/sandbox"
)

// stalled is a process that neither reads nor writes until it is killed.
type stalled struct {
	sandbox.Process
	end  func()
	over chan struct{}
}

func (s stalled) Kill() error { s.end(); return nil }

func (s stalled) Wait(context.Context) (sandbox.Result, error) {
	<-s.over
	return sandbox.Result{}, nil
}

// TestDeadlinesOfAPortHoldInBothDirections: reads and writes use separate streams.
func TestDeadlinesOfAPortHoldInBothDirections(t *testing.T) {
	over := make(chan struct{})
	c, err := far.PortStart(func(io.Reader, io.Writer) (sandbox.Process, error) {
		return stalled{over: over, end: sync.OnceFunc(func() { close(over) })}, nil
	})
	require.NoError(t, err)
	past := time.Unix(1, 0)
	one := make([]byte, 1)
	require.NoError(t, c.SetReadDeadline(past))
	_, err = c.Read(one)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	for _, set := range []func(time.Time) error{c.SetWriteDeadline, c.SetDeadline} {
		require.NoError(t, set(past))
		_, err = c.Write(one)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, set(time.Time{}))
	}
	require.NoError(t, c.Close())
}
