package hold_test

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hold"
)

// watched is a session without programs.
type watched struct {
	hold.Session
	removals atomic.Int32
	stays    bool // a client that looks stays until the holder ends
}

func (w *watched) Do(ctx context.Context, _ hold.Request, _ hold.Streams) (*hold.Answer, error) {
	if w.stays {
		<-ctx.Done()
	}
	return &hold.Answer{}, nil
}

func (w *watched) Busy() bool { return false }

func (w *watched) Empty(context.Context) error {
	w.removals.Add(1)
	return nil
}

// TestWhoLooksKeepsNoHolderAlive: neither by staying, nor by coming again and again.
func TestWhoLooksKeepsNoHolderAlive(t *testing.T) {
	for _, stays := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		s := &watched{stays: stays}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // against hanging for ever
		ended := make(chan error, 1)
		go func() { ended <- hold.New(&hold.Options{Session: s, Idle: time.Millisecond}).Serve(ctx, l) }()
		client := &hold.Client{Dial: func(context.Context) (*hold.Conn, error) {
			conn, err := net.Dial("unix", path)
			if err != nil {
				return nil, hold.ErrNoHolder
			}
			return hold.NewConn(conn), nil
		}}
		for len(ended) == 0 {
			_ = client.Do(t.Context(), hold.Request{Op: "usage", Look: true}, hold.Streams{}, &hold.Answer{})
		}
		assert.ErrorContains(t, <-ended, "idle")
		assert.Equal(t, int32(1), s.removals.Load(), "it is removed once")
		cancel()
	}
}
