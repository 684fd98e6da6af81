package ports

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASilentConnectionGivesWay(t *testing.T) {
	program, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := program.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &forwarder{silence: time.Second, places: make(chan struct{}, 2), open: map[*visit]bool{}, failed: func(err error) { t.Error(err) }}
	f.dial = func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", program.Addr().String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.serve(ctx, l) }()
	open := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		return conn
	}
	echo := func(conn net.Conn) error {
		_, err := io.WriteString(conn, "x")
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		return err
	}
	silent := open()
	require.NoError(t, echo(silent))
	lively := open()
	require.NoError(t, echo(lively))
	fresh := open()
	answered := make(chan error, 1)
	go func() { answered <- echo(fresh) }()
	for waits := true; waits; {
		select {
		case err := <-answered:
			require.NoError(t, err)
			waits = false
		case <-time.After(10 * time.Millisecond):
			require.NoError(t, echo(lively))
		}
	}
	assert.NoError(t, echo(lively), "one with bytes stays")
	assert.Error(t, echo(silent))
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, program.Close())
	<-done
}
